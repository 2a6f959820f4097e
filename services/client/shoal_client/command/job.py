"""`shoal job`: submits a job and shows how it goes and what was learned; it trains nothing."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import pydantic
import typer
from rich.console import RenderableType
from rich.live import Live
from rich.table import Table

from shoal_client import task_files
from shoal_client.analyst import Job
from shoal_client.async_analyst import JobState
from shoal_client.command import job_views
from shoal_client.command.connection import (
    ConsortiumDirectory,
    JobId,
    PartyDirectory,
    ask_trainer,
    checked_id,
    open_analyst,
    open_book,
)
from shoal_client.command.round_groups import FEW_ROUNDS
from shoal_client.command.terminal import (
    AsJson,
    ExitStatus,
    asking,
    fail,
    now,
    output,
    plain,
    say,
    say_json,
    say_json_line,
    show,
)
from shoal_client.task_files import read_task_file
from shoal_protocol.jobs import JobRequest, PosteriorReport
from shoal_protocol.phases import JobPhase
from shoal_protocol.tasks import TaskName

app = typer.Typer(no_args_is_help=True, help="Submit a job, watch it, see its posterior.")


class _ListedJob(pydantic.BaseModel):
    job: str
    phase: JobPhase


class _JobList(pydantic.BaseModel):
    jobs: list[_ListedJob]


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
    file = read_task_file(task)
    with asking("the trainer"):
        job = open_analyst(party, consortium).submit(
            file.task,
            epsilon=file.privacy.epsilon,
            delta=file.privacy.delta,
            dropouts=file.privacy.dropouts,
            colluders=file.privacy.colluders,
            minimum_population=file.population.minimum,
            maximum_population=file.population.maximum,
            join_seconds=file.deadlines.join,
            round_seconds=file.deadlines.round,
            grace_seconds=file.deadlines.grace,
            sharing=file.sharing,
        )
    if not wait:
        if as_json:
            say_json({"job": job.id})
        else:
            say(job.id)
        return
    with _going_on(job.id, party, consortium):
        if as_json:
            _print(job.wait(), as_json=True)
            return
        say(f"Submitted job {job.id}")
        _print(_watched(job), as_json=False)


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
    handle = open_analyst(party, consortium).job(checked_id(job))
    with _going_on(job, party, consortium):
        if as_json:
            report = handle.wait(lambda state: say_json_line(state.model_dump(mode="json")))
            say_json_line(report.model_dump(mode="json"))
            return
        _print(_watched(handle), as_json=False)


@app.command()
def result(
    job: JobId,
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    as_json: AsJson = False,
) -> None:
    """Show a job's posterior, its cohort and what it cost, with the signatures checked."""
    handle = open_analyst(party, consortium).job(checked_id(job))
    with asking("the trainer"):
        report = handle.result()
    if report is None:
        fail("the job has no posterior yet; see `shoal job watch`", ExitStatus.NOT_YET)
    _print(report, as_json=as_json)


@app.command("list")
def list_jobs(
    party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """List the trainer's jobs, of all analysts."""
    listed = ask_trainer(_JobList, open_book(party, consortium), "/v1/jobs")
    if as_json:
        say_json(listed.model_dump(mode="json"))
        return
    table = Table("job", "phase")
    for each in listed.jobs:
        table.add_row(plain(each.job), each.phase)
    show(table)


@app.command()
def withdraw(
    job: JobId, party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Withdraw a job of your own: it asks nothing more, and clients' budgets come free.

    What answered rounds cost stays charged. A job that has ended cannot be withdrawn.
    """
    handle = open_analyst(party, consortium).job(checked_id(job))
    with asking("the trainer"):
        handle.withdraw()
    if as_json:
        say_json({"job": handle.id, "phase": JobPhase.WITHDRAWN.value})
    else:
        say("The job is withdrawn. What answered rounds cost stays charged; the rest comes free.")


@contextmanager
def _going_on(job: str, party: Path, consortium: Path) -> Iterator[None]:
    """Say, when the wait is interrupted, that the job is not."""
    try:
        yield
    except KeyboardInterrupt:
        again = shlex.join(["--party", str(party), "--consortium", str(consortium)])
        fail(
            f"interrupted, but the job goes on; to see it: shoal job watch {job} {again}",
            ExitStatus.NOT_YET,
        )


class _Progress:
    """The newest state of a job, drawn anew several times a second for its countdown."""

    def __init__(self, request: JobRequest) -> None:
        self._request = request
        self._state: JobState | None = None

    def __rich__(self) -> RenderableType:
        if self._state is None:
            return plain("Asking the trainer ...")
        rounds, deadline = self._request.task.rounds, self._request.join_deadline
        return job_views.progress(self._state, rounds=rounds, join_deadline=deadline, now=now())

    def update(self, state: JobState) -> None:
        self._state = state


def _watched(job: Job) -> PosteriorReport:
    console, request = output(), job.request()
    rounds, deadline = request.task.rounds, request.join_deadline
    if not console.is_terminal:
        begun = set[str]()

        def tell(state: JobState) -> None:
            for each in state.rounds if rounds <= FEW_ROUNDS else ():
                if each.round not in begun:
                    say(f"Round {each.number} is {each.round}")
                begun.add(each.round)
            say(job_views.one_line(state, rounds=rounds, join_deadline=deadline, now=now()))

        return job.wait(tell)
    progress = _Progress(request)
    with Live(progress, console=console, refresh_per_second=4):
        return job.wait(progress.update)


def _print(report: PosteriorReport, *, as_json: bool) -> None:
    if as_json:
        say_json(report.model_dump(mode="json"))
    else:
        output().print(job_views.posterior(report))
