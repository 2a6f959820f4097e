"""`shoal job` and `shoal certificate fetch`: submit a job, and show how it goes and ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from shoal.jobs import task_files
from shoal.jobs.analyst import Analyst, Job
from shoal_command.connection import (
    ConsortiumDirectory,
    JobId,
    PartyDirectory,
    checked_id,
    open_book,
)
from shoal_command.terminal import (
    AsJson,
    ExitStatus,
    Yes,
    confirm,
    fail,
    say,
    say_json,
    shell_command,
    tell,
    warn,
)
from shoal_command_groups import job_views
from shoal_kit.manifest_book import history_paths
from shoal_kit.private_files import write_new
from shoal_protocol.certificates.release_certificate import pack, read_certificate
from shoal_protocol.jobs.job_state import JobState
from shoal_protocol.wire.phases import JobPhase
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.registry import TaskName

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
    job = Analyst.open(party, consortium, notice=warn).submit(file.task, file.settings)
    if not wait:
        tell({"job": job.id}, as_json, job.id)
        return
    with _going_on(job.id, party, consortium):
        if not as_json:
            say(f"Submitted job {job.id}")
        report = job.wait() if as_json else _watched(job)
    tell(report, as_json, job_views.posterior(report))


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
    checked = analyst.check(file.task, file.settings)
    known = analyst.variables() if simulate else {}
    errors = job_views.simulated(checked, known.values()) if simulate else ()
    tell(job_views.check_facts(checked, errors), as_json, job_views.check(checked, errors))
    if not checked.would_run:
        fail("the job would not run: " + "; ".join(checked.advice), ExitStatus.MISTAKE)


@app.command()
def variables(
    party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Show the consortium's data dictionary: what jobs may read, with bounds and meanings."""
    variables = Analyst.open(party, consortium, notice=warn).dictionary().variables
    tell(variables, as_json, variables)


@app.command()
def example(
    task: Annotated[TaskName, typer.Option(help="The model.")] = "regression",
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
        report = handle.wait(partial(say_json, indent=None)) if as_json else _watched(handle)
    tell(report, as_json, job_views.posterior(report), indent=None)


@app.command()
def result(
    job: JobId, party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Show a job's posterior, its cohort and what it cost, with the signatures checked."""
    report = _handle(job, party, consortium).result()
    if report is None:
        fail("the job has no posterior yet; see `shoal job watch`", ExitStatus.NOT_YET)
    tell(report, as_json, job_views.posterior(report))


@app.command("list")
def list_jobs(
    party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """List the trainer's jobs, of all analysts: when, who, what, epsilon and state.

    Crowd jobs follow those in rounds. Below is how much epsilon clients have left for one more job.
    """
    analyst = Analyst.open(party, consortium, notice=warn)
    listed, crowds = analyst.jobs(), analyst.crowds()
    tell(
        listed.model_dump(exclude={"next"}) | {"crowds": crowds},
        as_json,
        job_views.listed(listed, crowds),
    )


@app.command()
def withdraw(
    job: JobId,
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Withdraw a job of your own: it asks nothing more, and clients' budgets come free.

    What answered rounds cost stays charged. A job that has ended cannot be withdrawn.
    """
    handle = _handle(job, party, consortium)
    request, state = handle.request(), handle.state()
    if state.phase in job_views.OPEN_PHASES:  # else the trainer's refusal says why
        confirm(
            "Withdraw for good?",
            f"Job {job} of {request.analyst}, “{request.purpose or 'without a purpose'}”, ends.",
            handle.in_words(state),
            yes=yes,
        )
    handle.withdraw()
    tell(
        {"job": job, "phase": JobPhase.WITHDRAWN},
        as_json,
        "The job is withdrawn. What answered rounds cost stays charged; the rest comes free.",
    )


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
    encoded = _handle(job, party, consortium).certificate()
    if encoded is None:
        fail("the job is not finished; see `shoal job watch`", ExitStatus.NOT_YET)
    if str(out) == "-":
        typer.echo(encoded, nl=False)
        return
    write_new(out, pack(encoded) if out.suffix == ".gz" else encoded, private=False)
    version = open_book(party, consortium).get(read_certificate(encoded).manifest)
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
        for each in state.rounds if rounds <= job_views.FEW_ROUNDS else ():
            if each.round not in begun:
                say(f"Round {each.number} is {each.round}")
            begun.add(each.round)
        say(job.in_words(state))

    return job.wait(tell_of)
