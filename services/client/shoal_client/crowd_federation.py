"""A federation to fit crowd estimators on: an analyst, and what each of her crowd jobs asks.

federation = CrowdFederation.open("my-party", "consortium", contributions=1_000_000, ...)
model = CrowdLogisticRegression(features=..., target=..., epsilon=4.0, ...).fit(federation)
"""

from collections.abc import Sequence
from os import PathLike
from typing import Final, Protocol

from rich.console import Console

from shoal_client.analyst import Analyst
from shoal_client.crowds.job import CrowdJob
from shoal_client.job_failures import JobFailed, JobInterrupted
from shoal_client.watching import noticing, progress_console, told
from shoal_protocol.draw_and_discard.model import CrowdModel
from shoal_protocol.draw_and_discard.tasks import CrowdTask

_SNAPSHOTS: Final = 200  # of one job, about


class LearningCrowd(Protocol):
    """What crowd estimators are fitted on: `CrowdFederation`, or shoal_learning's crowd."""

    def learn(self, task: CrowdTask) -> Sequence[CrowdModel]:
        """Have a task learned; return its snapshots in order, and in the end the model."""
        ...


class WaitingCrowd(Protocol):
    """A crowd job that will be learned: `SubmittedCrowd`."""

    def wait(self) -> Sequence[CrowdModel]:
        """Wait until it is; return its snapshots in order, and in the end the model."""
        ...


class SubmittedCrowd:
    """A crowd job that the trainer has; it goes on whether anybody waits for it or not."""

    def __init__(self, job: CrowdJob, console: Console | None, *, every_seconds: float) -> None:
        self.job = job
        """To look at the job, close it early, or verify how it ended."""
        self._console = console
        self._every_seconds = every_seconds

    @property
    def id(self) -> str:
        """Return the job's id: keep it to come back with `CrowdFederation.resume`."""
        return self.job.id

    def __repr__(self) -> str:
        return f"SubmittedCrowd({self.id!r})"

    def wait(self) -> tuple[CrowdModel, ...]:
        """Wait until the job is closed; return snapshots, and the model of the signed closing.

        Snapshots are those since now, by the trainer's word.

        Raises:
            JobInterrupted: by the user; `CrowdFederation.resume(interrupted.job)` finds it again.
            JobFailed: nobody contributed.
            Unavailable: the trainer did not answer, several times.
            ProtocolError: what the trainer shows is not signed as it should be.
        """
        told(self._console, f"Crowd job {self.id}")
        models: list[CrowdModel] = []
        try:
            wanted = self.job.state().wanted
            for model in self.job.follow(every_seconds=self._every_seconds):
                if models and models[-1].contributions == model.contributions:
                    models[-1] = model  # the same, or the closing's
                    continue
                models.append(model)
                told(self._console, f"{model.contributions:,} of {wanted:,} contributions")
        except KeyboardInterrupt:
            told(
                self._console,
                "Interrupted, but the job goes on. To come back: estimator.fit_from("
                f"federation.resume({self.id!r}))",
            )
            raise JobInterrupted(self.id) from None
        if not models[-1].contributions:
            raise JobFailed(
                "nobody contributed: agents' logs say whether they refused the job, or whether "
                "no client or record had enough epsilon left for it"
            )
        return tuple(models)


class CrowdFederation:
    """A consortium, one of its analysts, and what every crowd job of hers asks of clients.

    Each fit is a job of its own: a client contributes at most `contributions_per_client` times, a
    record `contributions_per_record` times, each time for the epsilon of what is learned.
    """

    def __init__(
        self,
        analyst: Analyst,
        *,
        contributions: int,
        contributions_per_client: int,
        contributions_per_record: int,
        session_seconds: int,
        open_seconds: int,
        show_progress: bool = True,
    ) -> None:
        """Keep what each job is opened with; see `Analyst.open_crowd` for what it all means."""
        self._analyst = analyst
        self.contributions = contributions
        self.contributions_per_client = contributions_per_client
        self.contributions_per_record = contributions_per_record
        self.session_seconds = session_seconds
        self.open_seconds = open_seconds
        self._console = progress_console(show_progress)

    @classmethod
    def open(
        cls,
        party: str | PathLike[str],
        consortium: str | PathLike[str],
        *,
        contributions: int,
        contributions_per_client: int,
        contributions_per_record: int,
        session_seconds: int,
        open_seconds: int,
        show_progress: bool = True,
    ) -> "CrowdFederation":
        """Open an analyst's party directory and the consortium's public directory.

        Raises:
            StartupRefused: a file is missing, open to others, or not what the pin vouches for.
        """
        return cls(
            Analyst.open(party, consortium, notice=noticing(progress_console(show_progress))),
            contributions=contributions,
            contributions_per_client=contributions_per_client,
            contributions_per_record=contributions_per_record,
            session_seconds=session_seconds,
            open_seconds=open_seconds,
            show_progress=show_progress,
        )

    def submit(self, task: CrowdTask) -> SubmittedCrowd:
        """Open a crowd job for a task and return at once.

        Raises:
            ValueError, JobRefused, Unavailable, JobInterrupted: as `Analyst.open_crowd`.
        """
        job = self._analyst.open_crowd(
            task,
            contributions=self.contributions,
            contributions_per_client=self.contributions_per_client,
            contributions_per_record=self.contributions_per_record,
            session_seconds=self.session_seconds,
            open_seconds=self.open_seconds,
        )
        return self.resume(job.id)

    def resume(self, job: str) -> SubmittedCrowd:
        """Return a crowd job that was opened earlier, from its id.

        `estimator.fit_from(federation.resume(job))` waits for it and is fitted by it.
        """
        pause = max(1.0, self.open_seconds / _SNAPSHOTS)
        return SubmittedCrowd(self._analyst.crowd(job), self._console, every_seconds=pause)

    def learn(self, task: CrowdTask) -> tuple[CrowdModel, ...]:
        """Open a crowd job for a task, wait for its end and show how it goes on.

        Raises:
            ValueError, JobRefused: as `submit`.
            JobInterrupted, JobFailed, Unavailable, ProtocolError: as `SubmittedCrowd.wait`.
        """
        return self.submit(task).wait()
