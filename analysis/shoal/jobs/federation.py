"""Federations to fit estimators on: an analyst, and the settings and price of each of her jobs.

federation = Federation.open("my-party", "consortium", JobSettings(epsilon=1.0, delta=1e-6, ...))
model = LinearRegression(features={"age": (18, 90)}, target={"pressure": (80, 180)}).fit(federation)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Final, Generic, Protocol, Self, TypeVar

from rich.console import Console
from rich.text import Text

from shoal.jobs.analyst import Analyst, CrowdJob, Job
from shoal.jobs.job_check import JobCheckReport
from shoal.jobs.job_failures import JobFailed, JobInterrupted
from shoal.jobs.job_settings import CrowdSettings, JobSettings
from shoal.jobs.job_states import CrowdState, JobState
from shoal.jobs.trainer_line import Notice
from shoal_learning.crowds.simulation import CrowdModel
from shoal_protocol.certificates.posterior_report import PosteriorReport
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.privacy.job_costs import PrivacySpent
from shoal_protocol.studies import Posterior, Task
from shoal_protocol.trust.dictionary import Category, Date, Flag, Number

_LINES: Final = 10  # at most, of the rounds of one job


class Watch:
    """Prints a job's state, passed to `see`, when it has changed; without a console, nothing.

    Of many rounds a tenth each is one change.
    """

    def __init__(self, console: Console | None, job: str, request: StudyRequest) -> None:
        self._console = console
        self._request = request
        self._last: object = None
        told(console, f"Job {job}")

    def see(self, state: JobState) -> None:
        """Print a new state."""
        rounds = self._request.task.rounds
        tenth = (state.published + state.lost) // -(-rounds // _LINES)
        at = (state.phase, state.approvals, tenth)
        if at != self._last:
            deadline = self._request.join_deadline
            told(self._console, state.in_words(rounds=rounds, join_deadline=deadline))
        self._last = at


def told(console: Console | None, text: str) -> None:
    """Print a line of plain text, if there is a console."""
    if console is not None:
        visible = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
        console.print(Text(visible), soft_wrap=True)


def progress_console(is_shown: bool) -> Console | None:
    """Return the console for progress: standard error, or None."""
    return Console(stderr=True, highlight=False) if is_shown else None


def noticing(console: Console | None) -> Notice:
    """Return a notice that is printed as a warning, if there is a console."""
    return lambda text: told(console, f"Warning: {text}")


Dictionary = Mapping[str, Number | Flag | Category | Date]
"""The variables of a data dictionary, by name."""

SettingsT = TypeVar("SettingsT", bound=JobSettings | CrowdSettings)
JobT = TypeVar("JobT", bound=Job | CrowdJob)
OutcomeT = TypeVar("OutcomeT")


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
        """Learn a task and return the result."""
        ...


class Waiting(Protocol):
    """A job that will be learned: `SubmittedJob`."""

    def wait(self) -> Learned:
        """Wait until it is."""
        ...


class LearningCrowd(Protocol):
    """What crowd estimators are fitted on: `CrowdFederation`, or shoal_learning's crowd."""

    def learn(self, task: CrowdTask) -> CrowdModel:
        """Learn a task."""
        ...


class WaitingCrowd(Protocol):
    """A crowd job that will be learned: `SubmittedCrowd`."""

    def wait(self) -> CrowdModel:
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


class _Submitted(ABC, Generic[JobT, OutcomeT]):
    def __init__(
        self, job: JobT, console: Console | None, variables: Callable[[], Dictionary]
    ) -> None:
        self.job = job
        """To look at the job, end it early, or verify how it ended."""
        self.variables = variables
        """To ask for the data dictionary's variables, as the federation's `variables`."""
        self._console = console

    @property
    def id(self) -> str:
        """Return the job's id: keep it to come back with the federation's `resume`."""
        return self.job.id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def wait(self) -> OutcomeT:
        """Wait for what is learned, and show how the job goes on.

        Raises:
            JobInterrupted: by the user; the federation's `resume(interrupted.job)` finds it again.
            JobFailed: nothing was learned; the message says why.
            Unavailable: the trainer did not answer, several times.
            ProtocolError: what the trainer shows is not signed as it should be.
        """
        try:
            return self._outcome()
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

    @abstractmethod
    def _outcome(self) -> OutcomeT: ...


class SubmittedJob(_Submitted[Job, LearnedJob]):
    """A job that the trainer has; it goes on whether anybody waits for it or not."""

    def _outcome(self) -> LearnedJob:
        request = self.job.request()
        report = self.job.wait(Watch(self._console, self.id, request).see)
        return LearnedJob(request.task, report, self.job)


class SubmittedCrowd(_Submitted[CrowdJob, CrowdModel]):
    """A crowd job that the trainer has; it goes on whether anybody waits for it or not."""

    def _outcome(self) -> CrowdModel:
        told(self._console, f"Crowd job {self.id}")
        last = ""

        def see(state: CrowdState) -> None:
            nonlocal last
            line = str(state)
            if line != last:
                told(self._console, line)
            last = line

        model = self.job.wait(see)
        if not model.contributions:
            raise JobFailed(
                "nobody contributed: agents' logs say whether they refused the job, or whether "
                "no client or record had enough epsilon left for it"
            )
        return model


class _Federation(Generic[SettingsT]):
    def __init__(
        self, analyst: Analyst, settings: SettingsT, *, show_progress: bool = True
    ) -> None:
        """Keep what each job is submitted with."""
        self._analyst = analyst
        self.settings = settings
        self._console = progress_console(show_progress)

    @classmethod
    def open(
        cls,
        party: str | PathLike[str],
        consortium: str | PathLike[str],
        settings: SettingsT,
        *,
        show_progress: bool = True,
    ) -> Self:
        """Open an analyst's party directory and the consortium's public directory.

        Raises:
            StartupRefused: a file is missing, open to others, or not what the pin vouches for.
        """
        notice = noticing(progress_console(show_progress))
        analyst = Analyst.open(party, consortium, notice=notice)
        return cls(analyst, settings, show_progress=show_progress)

    def variables(self) -> Dictionary:
        """Return the variables of the consortium's data dictionary that are in use, by name.

        Indicators of missing values are among them.

        Raises:
            JobRefused: there is no dictionary.
            Unavailable, ProtocolError: as `Analyst.dictionary`.
        """
        named = self._analyst.dictionary().named()
        return {name: each for name, each in named.items() if not each.retired}


class Federation(_Federation[JobSettings]):
    """A consortium, one of its analysts, and what every job of hers asks and may cost.

    Each fit is a job of its own and costs the clients who join (`epsilon`, `delta`) once more.
    """

    def submit(self, task: Task) -> SubmittedJob:
        """Submit a job for a task and return at once.

        Raises:
            ValueError, OutOfBudget, JobRefused, Unavailable, JobInterrupted: as `Analyst.submit`.
        """
        return self.resume(self._analyst.submit(task, self.settings).id)

    def check(self, task: Task) -> JobCheckReport:
        """Say what would become of a job for a task. Nothing is submitted, and nothing is spent.

        Raises:
            ValueError, JobRefused, Unavailable, ProtocolError: as `Analyst.check`.
        """
        return self._analyst.check(task, self.settings)

    def resume(self, job: str) -> SubmittedJob:
        """Return a job that was submitted earlier, from its id.

        `estimator.fit_from(federation.resume(job))` waits for it and is fitted by it.
        """
        return SubmittedJob(self._analyst.job(job), self._console, self.variables)

    def learn(self, task: Task) -> LearnedJob:
        """Submit a job for a task, wait for the posterior and show how the job goes on.

        Raises:
            ValueError, OutOfBudget, JobRefused: as `submit`.
            JobInterrupted, JobFailed, Unavailable, ProtocolError: as `SubmittedJob.wait`.
        """
        return self.submit(task).wait()


class CrowdFederation(_Federation[CrowdSettings]):
    """A consortium, one of its analysts, and what every crowd job of hers asks of clients.

    Each fit is a job of its own, and each contribution costs the epsilon of what is learned.
    """

    def submit(self, task: CrowdTask) -> SubmittedCrowd:
        """Open a crowd job for a task and return at once.

        Raises:
            ValueError, JobRefused, Unavailable, JobInterrupted: as `Analyst.open_crowd`.
        """
        return self.resume(self._analyst.open_crowd(task, self.settings).id)

    def resume(self, job: str) -> SubmittedCrowd:
        """Return a crowd job that was opened earlier, from its id.

        `estimator.fit_from(federation.resume(job))` waits for it and is fitted by it.
        """
        return SubmittedCrowd(self._analyst.crowd(job), self._console, self.variables)

    def learn(self, task: CrowdTask) -> CrowdModel:
        """Open a crowd job for a task, wait for its end and show how it goes on.

        Raises:
            ValueError, JobRefused: as `submit`.
            JobInterrupted, JobFailed, Unavailable, ProtocolError: as `SubmittedCrowd.wait`.
        """
        return self.submit(task).wait()
