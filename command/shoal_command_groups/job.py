"""`shoal job` and `shoal certificate fetch`: submit a job, and show how it goes and ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from shoal.jobs import task_files
from shoal.jobs.analyst import Analyst, Job
from shoal.jobs.expected_error import ExpectedError
from shoal.jobs.job_states import JobState
from shoal_command.certificate import FEW_ROUNDS
from shoal_command.connection import (
    ConsortiumDirectory,
    JobId,
    PartyDirectory,
    checked_id,
    open_book,
)
from shoal_command.rendering import rendered
from shoal_command.terminal import (
    AsJson,
    ExitStatus,
    Yes,
    asking,
    confirm,
    fail,
    present,
    say,
    say_json,
    shell_command,
    show,
    tell,
    warn,
)
from shoal_command_groups import job_views
from shoal_hosting.manifests.manifest_book import history_paths
from shoal_hosting.private_files import write_new
from shoal_protocol.certificates.posterior_report import PosteriorReport
from shoal_protocol.certificates.release_certificate import pack, read_certificate
from shoal_protocol.studies import TaskName
from shoal_protocol.wire.phases import JobPhase

app = typer.Typer(no_args_is_help=True, help="Submit a job, watch it, see its posterior.")


@app.command()
def submit(
    task: Annotated[Path, typer.Argument(help="Task file in TOML.", metavar="TASK")],
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the posterior.")] = False,
    as_json: AsJson = False,
) -> None:
    """Sign a job and hand it to the trainer; clients may join from now on.

    See `shoal job example` for a task file.
    """
    file = task_files.read_task_file(task)
    with asking("the trainer"):
        job = Analyst.open(party, consortium, notice=warn).submit(file.task, file.settings)
    if not wait:
        tell({"job": job.id}, as_json, job.id)
        return
    with _going_on(job.id, party, consortium):
        if not as_json:
            say(f"Submitted job {job.id}")
        _print(job.wait() if as_json else _watched(job), as_json)


@app.command()
def check(
    task: Annotated[Path, typer.Argument(help="Task file in TOML.", metavar="TASK")],
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    simulate: Annotated[
        bool, typer.Option(help="Simulate the job on invented records: what errors to expect.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Show whether a job would run, who would answer, its price, and what errors to expect.

    Nothing is submitted or spent. Errors come of a simulation with as many clients as would answer,
    whose values are spread evenly over what the job reads of each column, and not related.

    Exit status: 0 it would run; 1 it would not, and what to do is said.
    """
    file = task_files.read_task_file(task)
    analyst = Analyst.open(party, consortium, notice=warn)
    with asking("the trainer"):
        checked = analyst.check(file.task, file.settings)
        known = analyst.variables() if simulate else {}
    errors: tuple[ExpectedError, ...] | None = None
    if simulate:
        try:
            errors = checked.expected_errors(known.values())
        except ValueError as error:
            warn(f"the job was not simulated: {error}")
    if as_json:
        say_json(job_views.check_facts(checked, errors))
    else:
        show(rendered(job_views.check(checked, errors)))
    if not checked.would_run:
        fail("the job would not run: " + "; ".join(checked.advice), ExitStatus.MISTAKE)


@app.command()
def variables(
    party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Show the consortium's data dictionary: what jobs may read, with bounds and meanings."""
    with asking("the trainer"):
        dictionary = Analyst.open(party, consortium, notice=warn).dictionary()
    present(dictionary.variables, as_json)


@app.command()
def example(
    task: Annotated[TaskName, typer.Option(help="What is to be learned.")] = "linear_regression",
) -> None:
    """Print a task file to begin with."""
    say(task_files.example(task))


@app.command()
def watch(
    job: JobId, party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Show a job's progress until it ends, then its posterior.

    With --json, each new state is one line of JSON and the report the last one.
    """
    handle = _handle(job, party, consortium)
    with _going_on(job, party, consortium):
        if as_json:
            say_json(handle.wait(lambda state: say_json(state, indent=None)), indent=None)
        else:
            _print(_watched(handle), as_json)


@app.command()
def result(
    job: JobId, party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Show a job's posterior, its cohort and what it cost, with the signatures checked."""
    with asking("the trainer"):
        report = _handle(job, party, consortium).result()
    if report is None:
        fail("the job has no posterior yet; see `shoal job watch`", ExitStatus.NOT_YET)
    _print(report, as_json)


@app.command("list")
def list_jobs(
    party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """List the trainer's jobs, of all analysts: when, who, what, epsilon and state.

    Crowd jobs follow those in rounds. Below is how much epsilon clients have left for one more job.
    """
    with asking("the trainer"):
        analyst = Analyst.open(party, consortium, notice=warn)
        listed, crowds = analyst.jobs(), analyst.crowds()
    if as_json:
        of_crowds = [each.model_dump(mode="json") for each in crowds]
        say_json(listed.model_dump(mode="json", exclude={"next"}) | {"crowds": of_crowds})
    else:
        show(rendered(job_views.listed(listed, crowds)))


@app.command()
def withdraw(
    job: JobId,
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Withdraw a job of your own: it asks nothing more, and clients' budgets come free.

    What answered rounds cost stays charged. A job that has ended cannot be withdrawn. `cancel`
    and `withdraw` are the same.
    """
    handle = _handle(job, party, consortium)
    with asking("the trainer"):
        request, state = handle.request(), handle.state()
    confirm(
        "Withdraw for good?",
        f"Job {job} of {request.analyst}, “{request.purpose or 'without a purpose'}”, ends.",
        handle.in_words(state),
        yes=yes,
    )
    with asking("the trainer"):
        handle.withdraw()
    tell(
        {"job": job, "phase": JobPhase.WITHDRAWN},
        as_json,
        "The job is withdrawn. What answered rounds cost stays charged; the rest comes free.",
    )


app.command("cancel")(withdraw)


def fetch(
    job: JobId,
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    out: Annotated[
        Path,
        typer.Option(help="New file, compressed if it ends in .gz; - prints it."),
    ],
) -> None:
    """Get a finished job's release certificate from the trainer, and check it.

    A crowd job has none: see `shoal crowd verify`.

    Exit status: 0 written and checked; 1 the file exists, or a directory cannot be read; 2 wrong
    usage; 3 the trainer refused, or what it sent does not hold; 4 it could not be reached; 5 the
    job ended without a posterior; 6 the job is not finished yet.
    """
    with asking("the trainer"):
        encoded = _handle(job, party, consortium).certificate()
    if encoded is None:
        fail("the job is not finished; see `shoal job watch`", ExitStatus.NOT_YET)
    if str(out) == "-":
        typer.echo(encoded, nl=False)
        return
    write_new(out, pack(encoded) if out.suffix == ".gz" else encoded, private=False)
    version = open_book(party, consortium).get(read_certificate(encoded).body.manifest)
    manifest, _ = history_paths(consortium, version.manifest.sequence)
    again = shell_command("shoal", "certificate", "verify", out, "--manifest", manifest)
    say(f"Written and checked: {out}. Anyone can check it again: {again}")


def _handle(job: str, party: Path, consortium: Path) -> Job:
    return Analyst.open(party, consortium, notice=warn).job(checked_id(job))


@contextmanager
def _going_on(job: str, party: Path, consortium: Path) -> Iterator[None]:
    """Say, when the wait is interrupted, that the job is not."""
    try:
        yield
    except KeyboardInterrupt:
        where = ("--party", party, "--consortium", consortium)
        again = shell_command("shoal", "job", "watch", job, *where)
        fail(f"interrupted, but the job goes on; to see it: {again}", ExitStatus.NOT_YET)


def _watched(job: Job) -> PosteriorReport:
    rounds = job.request().task.rounds
    begun = set[str]()

    def tell_of(state: JobState) -> None:
        for each in state.rounds if rounds <= FEW_ROUNDS else ():
            if each.round not in begun:
                say(f"Round {each.number} is {each.round}")
            begun.add(each.round)
        say(job.in_words(state))

    return job.wait(tell_of)


def _print(report: PosteriorReport, as_json: bool) -> None:
    if as_json:
        say_json(report)
    else:
        show(rendered(job_views.posterior(report)))
