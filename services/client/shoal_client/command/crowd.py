"""`shoal crowd`: opens crowd jobs and shows how they go and what they learned; trains nothing."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live

from shoal_client import crowd_files
from shoal_client.command import crowd_comparing, crowd_views
from shoal_client.command.connection import (
    ConsortiumDirectory,
    JobId,
    PartyDirectory,
    checked_id,
    open_analyst,
    open_book,
)
from shoal_client.command.terminal import (
    AsJson,
    ExitStatus,
    asking,
    fail,
    now,
    output,
    say,
    say_json,
    say_json_line,
    show,
)
from shoal_client.crowd_files import read_crowd_file
from shoal_client.crowds.job import CrowdJob
from shoal_client.crowds.states import CrowdState
from shoal_protocol.draw_and_discard.model import CrowdModel
from shoal_protocol.draw_and_discard.privacy import statement
from shoal_protocol.draw_and_discard.tasks import Family

app = typer.Typer(
    no_args_is_help=True, help="Learn from crowds by Draw and Discard, without rounds."
)


app.command()(crowd_comparing.compare)


@app.command("open")
def open_crowd(
    file: Annotated[Path, typer.Argument(help="Crowd file in TOML.", metavar="FILE")],
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    as_json: AsJson = False,
) -> None:
    """Sign a crowd job and have the trainer open it; data holders contribute from now on.

    See `shoal crowd example` for a file.
    """
    read = read_crowd_file(file)
    with asking("the trainer"):
        job = open_analyst(party, consortium).open_crowd(
            read.task,
            contributions=read.contributions.total,
            contributions_per_client=read.contributions.per_client,
            contributions_per_record=read.contributions.per_record,
            session_seconds=read.times.session,
            open_seconds=read.times.open,
        )
    if as_json:
        say_json({"job": job.id})
    else:
        say(job.id)


@app.command()
def example(
    family: Annotated[Family, typer.Option(help="What is to be learned.")] = "logistic",
) -> None:
    """Print a crowd file to begin with."""
    say(crowd_files.example(family))


def _strictly_between(delta: float) -> float:
    if not 0.0 < delta < 1.0:
        raise typer.BadParameter("it must lie strictly between 0 and 1")
    return delta


@app.command()
def privacy(
    file: Annotated[Path, typer.Argument(help="Crowd file in TOML.", metavar="FILE")],
    later: Annotated[
        int, typer.Option(min=0, help="Contributions after one's own, until somebody looks.")
    ],
    overlap: Annotated[
        int,
        typer.Option(min=0, help="Contributions that may arrive between a draw and its answer."),
    ],
    delta: Annotated[
        float,
        typer.Option(
            help="Strictly between 0 and 1, for what later noise hides; the promise needs none.",
            callback=_strictly_between,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Say what one contribution costs against whom: a listener, an insider, a latecomer.

    It asks nobody: the task's own numbers are all that it takes.
    """
    said = statement(read_crowd_file(file).task, later=later, overlap=overlap, delta=delta)
    if as_json:
        say_json([dataclasses.asdict(each) for each in said.all])
        return
    for each in said.all:
        say(str(each))


@app.command("list")
def list_crowds(
    party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """List the trainer's crowd jobs, of all analysts, and where they stand by its word."""
    with asking("the trainer"):
        listed = open_analyst(party, consortium).crowds()
    if as_json:
        say_json({"crowds": [crowd_views.as_json(each) for each in listed]})
        return
    show(crowd_views.listed(listed))


@app.command("show")
def show_crowd(
    job: JobId, party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Show what a job asks and costs, and where it stands by the trainer's word."""
    handle = _handle(job, party, consortium)
    with asking("the trainer"):
        request, state, shown = handle.request(), handle.state(), handle.evidence()
    if as_json:
        values = {
            "request": request.model_dump(mode="json"),
            "state": state.model_dump(mode="json"),
            "fingerprints": shown.fingerprints,
        }
        say_json(values)
        return
    console = output()
    console.print(Group(crowd_views.asked(request), crowd_views.progress(state, now=now())))
    crowd_comparing.tell_fingerprints(shown)


@app.command()
def watch(
    job: JobId, party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Show a job's progress until it is closed, then its model.

    With --json, each new state is one line of JSON and the model the last one. Exit status 5:
    nobody contributed.
    """
    handle = _handle(job, party, consortium)
    try:
        if as_json:
            model = handle.wait(lambda state: say_json_line(state.model_dump(mode="json")))
            _check_contributions(model.contributions)
            say_json_line(model.to_dict())
            return
        model = _watched(handle)
        _check_contributions(model.contributions)
        _print(model)
    except KeyboardInterrupt:
        fail("interrupted, but the job goes on: `shoal crowd watch` again", ExitStatus.NOT_YET)


@app.command()
def model(
    job: JobId,
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="The model as it is now, by the trainer's word.")
    ] = False,
    start: Annotated[
        bool,
        typer.Option(
            "--start",
            help="Only the line of a crowd file by which another job goes on from this model. "
            "It must have the same columns and bounds.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a closed job has learned, by its signed closing.

    Exit status: 5 nobody contributed; 6 the job is still open.
    """
    handle = _handle(job, party, consortium)
    with asking("the trainer"):
        found = handle.snapshot() if snapshot else handle.result()
    if found is None:
        fail("the job is still open; --snapshot shows its model so far", ExitStatus.NOT_YET)
    if not snapshot:
        _check_contributions(found.contributions)
    if as_json:
        say_json(found.to_dict())
    elif start:
        say(crowd_views.start_line(found))
    else:
        _print(found)


@app.command()
def close(
    job: JobId, party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Close a job of yours now, for good: it takes no more contributions.

    What was contributed stays in its model; what clients did not contribute, they keep. The closing
    says that you asked. A job that is closed stays as it is.
    """
    handle = _handle(job, party, consortium)
    with asking("the trainer"):
        closing = handle.close()
    if as_json:
        say_json(closing.model_dump(mode="json"))
        return
    say(str(closing))


@app.command()
def verify(
    job: JobId,
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    compare: Annotated[
        list[str] | None,
        typer.Option(help="Fingerprint or file of evidence of another party; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="New file for what we were shown, for others to compare.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Follow the log of every instance of a closed job, from its opening to its closing.

    This shows that each instance was replaced as the seed says that the trainer was bound to, by
    as many contributions as it says. That no draw was steered and no acknowledged contribution
    dropped, the data holders' agents check by what they kept; see their `verdict`. That all were
    shown the same crowd, only comparing shows.

    Exit status: 3 a log does not hold, or somebody was shown another crowd; 5 all holds, but nobody
    contributed; 6 the job is still open (its opening was compared).
    """
    handle = _handle(job, party, consortium)
    with asking("the trainer"):
        shown = handle.evidence()
    crowd_comparing.hold_to(
        shown, compare or (), out=out, book=open_book(party, consortium), quiet=as_json
    )
    with asking("the trainer"):
        closing = handle.verify()
    if closing is None:
        fail("the job is still open; it can be verified when it is closed", ExitStatus.NOT_YET)
    if shown.closing is not None and shown.closing.body != closing:
        fail("the trainer showed two closings of one job", ExitStatus.REFUSED)
    _check_contributions(closing.contributions)
    if as_json:
        say_json(closing.model_dump(mode="json"))
        return
    say(crowd_views.unbroken(closing))
    say(str(closing))


def _handle(job: str, party: Path, consortium: Path) -> CrowdJob:
    return open_analyst(party, consortium).crowd(checked_id(job, listed_by="shoal crowd list"))


def _check_contributions(made: int) -> None:
    if not made:
        fail(crowd_views.NOBODY, ExitStatus.NO_POSTERIOR)


def _watched(job: CrowdJob) -> CrowdModel:
    console = output()
    if not console.is_terminal:
        return job.wait(lambda state: say(crowd_views.one_line(state, now=now())))
    with Live(console=console, refresh_per_second=4) as live:

        def tell(state: CrowdState) -> None:
            live.update(crowd_views.progress(state, now=now()))

        return job.wait(tell)


def _print(found: CrowdModel) -> None:
    output().print(crowd_views.learned(found))
