"""What estimators are fitted on: an analyst, and the settings and price of each of her jobs.

federation = Federation.open("my-party", "consortium", JobSettings(epsilon=1.0, delta=1e-6, ...))
model = LinearRegression(features={"age": (18, 90)}, target={"pressure": (80, 180)}).fit(federation)
"""

from os import PathLike
from typing import Self

from rich.console import Console

from shoal.jobs.analyst import Analyst, Job, told
from shoal.jobs.job_settings import JobSettings
from shoal_protocol.trust.dictionary import Category, Date, Flag, Number
from shoal_studies.registry import Task
from shoal_studies.simulation import SimulatedFederation


class Federation:
    """A consortium, one of its analysts, and what every job of hers asks and may cost.

    Each fit is a job of its own and costs the clients who join (`epsilon`, `delta`) once more.
    """

    def __init__(
        self, analyst: Analyst, settings: JobSettings, *, show_progress: bool = True
    ) -> None:
        """Keep what each job is submitted with."""
        self._analyst = analyst
        self.settings = settings
        self._console = _progress_console() if show_progress else None

    @classmethod
    def open(
        cls,
        party: str | PathLike[str],
        consortium: str | PathLike[str],
        settings: JobSettings,
        *,
        show_progress: bool = True,
    ) -> Self:
        """Open an analyst's party directory and the consortium's public directory.

        Raises:
            StartupRefused: a file is missing, open to others, or not what the pin vouches for.
        """
        console = _progress_console() if show_progress else None
        analyst = Analyst.open(
            party, consortium, notice=lambda text: told(console, f"Warning: {text}")
        )
        return cls(analyst, settings, show_progress=show_progress)

    def variables(self) -> dict[str, Number | Flag | Category | Date]:
        """Return the data dictionary's variables by name, as `Analyst.variables`."""
        return self._analyst.variables()

    def submit(self, task: Task) -> Job:
        """Submit a job for a task and return at once.

        Raises:
            ValueError, OutOfBudget, JobRefused, Unavailable, JobInterrupted: as `Analyst.submit`.
        """
        return self.resume(self._analyst.submit(task, self.settings).id)

    def resume(self, job: str) -> Job:
        """Return a job that was submitted earlier, from its id; its `wait` shows progress.

        `estimator.fit_from(federation.resume(job))` waits for it and is fitted by it.
        """
        return self._analyst.job(job, self._console)


def _progress_console() -> Console:
    return Console(stderr=True, highlight=False)


Learning = Federation | SimulatedFederation
"""What estimators are fitted on."""
