"""A federation to fit estimators on: an analyst, and what each of her jobs asks and may cost.

federation = Federation.open("my-party", "consortium", epsilon=1.0, delta=1e-6, ...)
model = LinearRegression(features={"age": (18, 90)}, target={"pressure": (80, 180)}).fit(federation)
"""

from dataclasses import dataclass
from os import PathLike
from typing import Protocol

from rich.console import Console

from shoal_client.analyst import Analyst, Job
from shoal_client.job_failures import JobFailed, JobInterrupted
from shoal_client.watching import Watch, noticing, progress_console, told
from shoal_protocol.jobs import PosteriorReport, PrivacySpent
from shoal_protocol.posteriors import Posterior
from shoal_protocol.schemes import ADDITIVE, Sharing
from shoal_protocol.tasks import Task


class Learned(Protocol):
    """A task that was learned, for real or in a simulation."""

    @property
    def task(self) -> Task:
        """What was learned."""
        ...

    @property
    def posterior(self) -> Posterior:
        """The posterior."""
        ...

    @property
    def privacy(self) -> PrivacySpent:
        """What it cost each client; in a simulation, what it would have."""
        ...

    @property
    def report(self) -> PosteriorReport | None:
        """The trainer's report, verified; None in a simulation."""
        ...

    def certificate(self) -> bytes | None:
        """Return the release certificate, verified; None in a simulation."""
        ...


class Learning(Protocol):
    """What estimators are fitted on: `Federation`, or shoal_learning's `SimulatedFederation`."""

    def learn(self, task: Task) -> Learned:
        """Have a task learned and return what came of it."""
        ...


class Waiting(Protocol):
    """A job that will be learned: `SubmittedJob`."""

    def wait(self) -> Learned:
        """Wait until it is."""
        ...


@dataclass(frozen=True)
class LearnedJob:
    """A finished job: what it was, its verified report, and its certificate when asked for."""

    task: Task
    report: PosteriorReport
    job: Job

    @property
    def posterior(self) -> Posterior:
        """The posterior in the report."""
        return self.report.posterior

    @property
    def privacy(self) -> PrivacySpent:
        """What the job cost each client."""
        return self.report.privacy

    def certificate(self) -> bytes | None:
        """Fetch the release certificate, verified.

        Raises:
            Unavailable, ProtocolError: as `Job.certificate`.
        """
        return self.job.certificate()


class SubmittedJob:
    """A job that the trainer has; it goes on whether anybody waits for it or not."""

    def __init__(self, job: Job, console: Console | None) -> None:
        self._job = job
        self._console = console

    @property
    def id(self) -> str:
        """Return the job's id: keep it to come back with `Federation.resume`."""
        return self._job.id

    def __repr__(self) -> str:
        return f"SubmittedJob({self.id!r})"

    def wait(self) -> LearnedJob:
        """Wait for the posterior, and show how the job goes on.

        Raises:
            JobInterrupted: by the user; `Federation.resume(interrupted.job)` finds the job again.
            JobFailed: the job ended without a posterior; the message says why.
            Unavailable: the trainer did not answer, several times.
            ProtocolError: what the trainer shows is not signed as it should be.
        """
        try:
            request = self._job.request()
            with Watch(self._console, self.id, request) as watch:
                report = self._job.wait(watch.see)
        except JobFailed as failure:
            if failure.hint is not None:
                failure.add_note(failure.hint)
            raise
        except KeyboardInterrupt:
            told(
                self._console,
                "Interrupted, but the job goes on. To come back: estimator.fit_from("
                f"federation.resume({self.id!r}))",
            )
            raise JobInterrupted(self.id) from None
        return LearnedJob(request.task, report, self._job)


class Federation:
    """A consortium, one of its analysts, and what every job of hers asks and may cost.

    Each fit is a job of its own and costs the clients who join (`epsilon`, `delta`) once more.
    """

    def __init__(
        self,
        analyst: Analyst,
        *,
        epsilon: float,
        delta: float,
        dropouts: int,
        colluders: int,
        minimum_population: int,
        maximum_population: int,
        join_seconds: int,
        round_seconds: int,
        grace_seconds: int,
        sharing: Sharing = ADDITIVE,
        show_progress: bool = True,
    ) -> None:
        """Keep what each job is submitted with; see `Analyst.submit` for what it all means."""
        self._analyst = analyst
        self.epsilon = epsilon
        self.delta = delta
        self.dropouts = dropouts
        self.colluders = colluders
        self.minimum_population = minimum_population
        self.maximum_population = maximum_population
        self.join_seconds = join_seconds
        self.round_seconds = round_seconds
        self.grace_seconds = grace_seconds
        self.sharing = sharing
        self._console = progress_console(show_progress)

    @classmethod
    def open(
        cls,
        party: str | PathLike[str],
        consortium: str | PathLike[str],
        *,
        epsilon: float,
        delta: float,
        dropouts: int,
        colluders: int,
        minimum_population: int,
        maximum_population: int,
        join_seconds: int,
        round_seconds: int,
        grace_seconds: int,
        sharing: Sharing = ADDITIVE,
        show_progress: bool = True,
    ) -> "Federation":
        """Open an analyst's party directory and the consortium's public directory.

        Raises:
            StartupRefused: a file is missing, open to others, or not what the pin vouches for.
        """
        return cls(
            Analyst.open(party, consortium, notice=noticing(progress_console(show_progress))),
            epsilon=epsilon,
            delta=delta,
            dropouts=dropouts,
            colluders=colluders,
            minimum_population=minimum_population,
            maximum_population=maximum_population,
            join_seconds=join_seconds,
            round_seconds=round_seconds,
            grace_seconds=grace_seconds,
            sharing=sharing,
            show_progress=show_progress,
        )

    def submit(self, task: Task) -> SubmittedJob:
        """Submit a job for a task and return at once.

        Raises:
            ValueError, OutOfBudget, JobRefused, Unavailable, JobInterrupted: as `Analyst.submit`.
        """
        job = self._analyst.submit(
            task,
            epsilon=self.epsilon,
            delta=self.delta,
            dropouts=self.dropouts,
            colluders=self.colluders,
            minimum_population=self.minimum_population,
            maximum_population=self.maximum_population,
            join_seconds=self.join_seconds,
            round_seconds=self.round_seconds,
            grace_seconds=self.grace_seconds,
            sharing=self.sharing,
        )
        return self.resume(job.id)

    def resume(self, job: str) -> SubmittedJob:
        """Return a job that was submitted earlier, from its id.

        `estimator.fit_from(federation.resume(job))` waits for it and is fitted by it.
        """
        return SubmittedJob(self._analyst.job(job), self._console)

    def learn(self, task: Task) -> LearnedJob:
        """Submit a job for a task, wait for the posterior and show how the job goes on.

        Raises:
            ValueError, OutOfBudget, JobRefused: as `submit`.
            JobInterrupted, JobFailed, Unavailable, ProtocolError: as `SubmittedJob.wait`.
        """
        return self.submit(task).wait()
