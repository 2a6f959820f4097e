"""`shoal crowd`: opens crowd jobs and shows how they go and what they learned."""

from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from shoal.jobs import task_files
from shoal.jobs.analyst import Analyst, CrowdJob
from shoal.jobs.job_states import CrowdState
from shoal_agent.console.sentences import Described, ahead
from shoal_command.connection import (
    ConsortiumDirectory,
    JobId,
    PartyDirectory,
    checked_id,
)
from shoal_command.terminal import (
    AsJson,
    ExitStatus,
    Yes,
    confirm,
    fail,
    now,
    say,
    tell,
    warn,
)
from shoal_protocol.crowds.draws import CrowdJobRequest
from shoal_protocol.queries.models import Family
from shoal_studies.crowds.simulation import CrowdModel

app = typer.Typer(
    no_args_is_help=True, help="Learn from crowds by Draw and Discard, without rounds."
)

NOBODY: Final = (
    "nobody contributed: agents refuse a job whose family or columns their policy or records do "
    "not have, and end one at once for which no client or record has enough epsilon left; they say "
    "which in their logs and in `shoal agent status`"
)


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
    read = task_files.read_crowd_file(file)
    job = Analyst.open(party, consortium, notice=warn).open_crowd(read.task, read.settings)
    tell({"job": job.id}, as_json, job.id)


@app.command()
def example(
    family: Annotated[Family, typer.Option(help="The model.")] = "logistic",
) -> None:
    """Print a crowd file to begin with."""
    say(task_files.crowd_example(family))


@app.command("show")
def show_crowd(
    job: JobId, party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Show what a job asks and costs, and where it stands by the trainer's word."""
    handle = _handle(job, party, consortium)
    request, state = handle.request(), handle.state()
    tell({"request": request, "state": state}, as_json, described(request, state, now=now()))


@app.command()
def watch(
    job: JobId, party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Show a job's progress until it is closed, then its model.

    With --json, each new state is one line of JSON and the model the last one. Exit status 5:
    nobody contributed.
    """
    model = _handle(job, party, consortium).wait(
        lambda state: tell(state, as_json, str(state), indent=None)
    )
    _check_contributions(model.contributions)
    tell(model.to_dict(), as_json, _learned(model), indent=None)


@app.command()
def model(
    job: JobId,
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="As it is now, by the trainer's word alone.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a closed job has learned, by its signed closing.

    Exit status: 5 nobody contributed; 6 the job is still open.
    """
    handle = _handle(job, party, consortium)
    found = handle.snapshot() if snapshot else handle.result()
    if found is None:
        fail("the job is still open; --snapshot shows its model so far", ExitStatus.NOT_YET)
    if not snapshot:
        _check_contributions(found.contributions)
    tell(found.to_dict(), as_json, _learned(found))


@app.command()
def close(
    job: JobId,
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Close a job of yours now, for good: it takes no more contributions.

    What was contributed stays in its model; what clients did not contribute, they keep. The closing
    says that you asked. A job that is closed stays as it is.
    """
    handle = _handle(job, party, consortium)
    confirm(
        "Close for good?",
        f"Job {job} takes no more contributions, for good.",
        str(handle.state()),
        yes=yes,
    )
    closing = handle.close()
    tell(closing, as_json, str(closing))


@app.command()
def verify(
    job: JobId,
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    as_json: AsJson = False,
) -> None:
    """Follow the log of every instance of a closed job, from its opening to its closing.

    This shows that each instance was replaced as the seed says that the trainer was bound to, by
    as many contributions as it says. That no draw was steered and no acknowledged contribution
    dropped, the data holders' agents check by what they kept; see their `verdict`.

    Exit status: 3 a log does not hold; 5 all holds, but nobody contributed; 6 the job is still
    open.
    """
    closing = _handle(job, party, consortium).verify()
    if closing is None:
        fail("the job is still open; it can be verified when it is closed", ExitStatus.NOT_YET)
    _check_contributions(closing.contributions)
    tell(
        closing,
        as_json,
        f"All {closing.contributions:,} contributions are in {len(closing.heads):,} unbroken logs, "
        "where the seed says that they belong, and lead to the instances of the closing.",
        str(closing),
    )


def _handle(job: str, party: Path, consortium: Path) -> CrowdJob:
    return Analyst.open(party, consortium, notice=warn).crowd(
        checked_id(job, listed_by="shoal job list")
    )


def _check_contributions(made: int) -> None:
    if not made:
        fail(NOBODY, ExitStatus.NO_POSTERIOR)


def described(request: CrowdJobRequest, state: CrowdState, *, now: datetime) -> Described:
    """Describe what a crowd job asks of whom, its cost to a client and a record, and its state."""
    task = request.task
    facts = {
        "Job": request.digest,
        "Asked by": request.analyst,
        "Learns": f"{task.family} model of {task.target.name}",
        "Features": ", ".join(each.name for each in task.features),
        "Each contribution": f"ε = {task.contribution_epsilon:g}, local and pure; {task.variant}",
        "At most": (
            f"{request.contributions_per_client:,} of a client (ε = {request.client_epsilon:g}), "
            f"each on {task.records_per_client:,} of its records"
        ),
        "Instances": f"{task.instances:,}",
        "Phase": state.phase.value,
        "Contributions": f"{state.contributions:,} of {state.wanted:,}",
        "Contributors": f"{state.contributors:,} clients",
        "Closes": ahead(state.closes_at, now=now),
        "Approval": state.waits_in_words,
        "If it stays so": None if state.contributions else NOBODY,
        "Variance over instances": ", ".join(f"{each:.4g}" for each in state.spread or ()),
    }
    return {name: each for name, each in facts.items() if each}


def _learned(model: CrowdModel) -> str:
    """Say what a model is, what it cost, what it is not, and how to go on from it."""
    start = ", ".join(f"{each:.9g}" for each in model.as_start())
    going_on = "To go on from here, in [task] of the next job, of the same columns and bounds:"
    return f"{model.summary()}\n\n{going_on}\nstart = [{start}]"
