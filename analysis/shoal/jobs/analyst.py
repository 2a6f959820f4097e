"""An analyst's blocking client for scripts and notebooks, over the asynchronous one.

analyst = Analyst.open("my-party", "consortium")
job = analyst.submit(task, JobSettings(epsilon=1.0, delta=1e-6, dropouts=20, colluders=20, ...))
report = job.wait()
report.posterior.interval(0.95)

crowd = analyst.open_crowd(task, CrowdSettings(contributions=100_000, ...))
crowd.snapshot().coefficients     # at any time
model = crowd.wait()              # when it is closed, by what the trainer signed
"""

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

import httpx
import nacl.utils
from nacl.signing import SigningKey

from shoal.jobs.async_analyst import AsyncAnalyst, opened
from shoal.jobs.async_jobs import AsyncJob
from shoal.jobs.blocking import run
from shoal.jobs.crowd_job import AsyncCrowdJob
from shoal.jobs.job_check import JobCheckReport
from shoal.jobs.job_failures import JobInterrupted
from shoal.jobs.job_settings import CrowdSettings, JobSettings
from shoal.jobs.job_states import JobsPage, ListedCrowd
from shoal.jobs.retry import Notice, unheard
from shoal_hosting.clock import Clock, system_clock
from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.studies import Task
from shoal_protocol.trust.dictionary import Category, DataDictionary, Date, Flag, Number
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed

Connect = Callable[[], AsyncAnalyst]
P = ParamSpec("P")
T = TypeVar("T")


class _BlockingJob:
    """A blocking handle: runs each method of an asynchronous handle to its end."""

    _handle: ClassVar[Callable[[AsyncAnalyst, str], Any]]

    def __init__(self, job: str, connect: Connect) -> None:
        """Ask by the connections that `connect` makes: they belong to one event loop each."""
        self.id = job
        self._connect = connect

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"


def _blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], *, goes_on: bool = False
) -> Callable[Concatenate[_BlockingJob, P], T]:
    """Return a method that runs `method` to its end; with `goes_on`, interrupted it says so."""

    @wraps(method)
    def call(self: _BlockingJob, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def connected() -> T:
            async with self._connect() as analyst:
                return await method(type(self)._handle(analyst, self.id), *args, **kwargs)

        try:
            return run(connected())
        except KeyboardInterrupt:
            if not goes_on:
                raise
            raise JobInterrupted(self.id) from None

    return call


class Job(_BlockingJob):
    """A job in rounds at the trainer, by its id.

    Every method raises `Unavailable` if the trainer did not answer, several times, `JobFailed`
    if it does not know the job, and `ProtocolError` for what is not signed as it should be.
    `wait` raises `JobInterrupted` if the user interrupts it; the job goes on.
    """

    _handle = AsyncAnalyst.job
    hand_in = _blocking(AsyncJob.hand_in)
    request = _blocking(AsyncJob.request)
    state = _blocking(AsyncJob.state)
    wait = _blocking(AsyncJob.wait, goes_on=True)
    result = _blocking(AsyncJob.result)
    certificate = _blocking(AsyncJob.certificate)
    withdraw = _blocking(AsyncJob.withdraw)


class CrowdJob(_BlockingJob):
    """A crowd job at the trainer, by its id: watch it, take its model, verify how it ended.

    Its methods raise what those of `Job` do.
    """

    _handle = AsyncAnalyst.crowd
    hand_in = _blocking(AsyncCrowdJob.hand_in)
    request = _blocking(AsyncCrowdJob.request)
    state = _blocking(AsyncCrowdJob.state)
    wait = _blocking(AsyncCrowdJob.wait, goes_on=True)
    result = _blocking(AsyncCrowdJob.result)
    snapshot = _blocking(AsyncCrowdJob.snapshot)
    close = _blocking(AsyncCrowdJob.close)
    verify = _blocking(AsyncCrowdJob.verify)


JobT = TypeVar("JobT", Job, CrowdJob)


class Analyst:
    """An analyst listed in the consortium's manifest."""

    def __init__(
        self,
        *,
        name: str,
        key: SigningKey | Callable[[Consortium], SigningKey],
        book: ManifestBook,
        clock: Clock = system_clock,
        random_bytes: RandomBytes = nacl.utils.random,
        transport: httpx.AsyncBaseTransport | None = None,
        notice: Notice = unheard,
    ) -> None:
        """Be the analyst of this name; the rest is as `AsyncAnalyst` takes it."""
        self._connect: Connect = partial(
            AsyncAnalyst,
            name=name,
            key=key,
            book=book,
            clock=clock,
            random_bytes=random_bytes,
            transport=transport,
            notice=notice,
        )

    @classmethod
    def open(
        cls,
        party: str | PathLike[str],
        consortium: str | PathLike[str],
        *,
        notice: Notice = unheard,
    ) -> "Analyst":
        """Open an analyst's party directory and the consortium's public directory.

        `notice` is told when the trainer does not answer and is asked again.

        Raises:
            StartupRefused: a file is missing, open to others, or not what the pin vouches for.
        """
        identity, book = opened(Path(party), Path(consortium))
        return cls(name=identity.name, key=identity.signing_key_in, book=book, notice=notice)

    def submit(self, task: Task, settings: JobSettings) -> Job:
        """Submit a job in rounds and return at once.

        Raises:
            ValueError: an argument is out of range.
            OutOfBudget: too few clients can pay for the job.
            JobRefused: the trainer or the consortium's policy does not allow it.
            Unavailable: the trainer did not answer, several times.
            JobInterrupted: by the user; the trainer may have taken the job, or not.
        """
        return self._hand_in(Job, task, settings)

    def dictionary(self) -> DataDictionary:
        """Return the consortium's data dictionary, verified by the authority's signature.

        Raises:
            JobRefused: there is none.
            Unavailable: the trainer did not answer, several times.
            ProtocolError: it is not signed as it should be.
        """

        async def asked() -> DataDictionary:
            async with self._connect() as analyst:
                return await analyst.dictionary()

        return run(asked())

    def variables(self) -> dict[str, Number | Flag | Category | Date]:
        """Return the dictionary's variables by name, indicators too; none without a dictionary.

        Raises:
            Unavailable, ProtocolError: as `dictionary`.
        """

        async def asked() -> dict[str, Number | Flag | Category | Date]:
            async with self._connect() as analyst:
                return await analyst.variables()

        return run(asked())

    def check(self, task: Task, settings: JobSettings) -> JobCheckReport:
        """Say what would become of a job in rounds. Nothing is submitted, and nothing is spent.

        Raises:
            ValueError: an argument is out of range.
            JobRefused: the trainer does not know the analyst or the manifest.
            Unavailable: the trainer did not answer, several times.
            ProtocolError: the trainer's answer is malformed.
        """

        async def checked() -> JobCheckReport:
            async with self._connect() as analyst:
                return await analyst.check(task, settings)

        return run(checked())

    def jobs(self, *, newest: int | None = None) -> JobsPage:
        """Return the trainer's jobs in rounds, of all analysts, and what is left of budgets.

        Raises:
            JobRefused, Unavailable, MalformedDocument: as `AsyncAnalyst.jobs`.
        """

        async def asked() -> JobsPage:
            async with self._connect() as analyst:
                return await analyst.jobs(newest=newest)

        return run(asked())

    def open_crowd(self, task: CrowdTask, settings: CrowdSettings) -> CrowdJob:
        """Open a crowd job (Draw and Discard) and return at once.

        Raises:
            ValueError, JobRefused, Unavailable, JobInterrupted: as `submit`.
        """
        return self._hand_in(CrowdJob, task, settings)

    def _hand_in(self, kind: type[JobT], task: Any, settings: Any) -> JobT:
        async def asked() -> Signed[Any]:
            async with self._connect() as analyst:
                return await analyst.request(task, settings)

        request = run(asked())
        job = kind(request.digest, self._connect)
        try:
            job.hand_in(request)
        except KeyboardInterrupt:
            raise JobInterrupted(job.id, acknowledged=False) from None
        return job

    def job(self, job: str) -> Job:
        """Return the handle of a job that was submitted earlier, from its id."""
        return Job(job, self._connect)

    def crowd(self, job: str) -> CrowdJob:
        """Return the handle of a crowd job that was opened earlier, from its id."""
        return CrowdJob(job, self._connect)

    def crowds(self, *, newest: int | None = None) -> list[ListedCrowd]:
        """Return the trainer's crowd jobs, of all analysts, the newest first, or so many.

        Raises:
            JobRefused, Unavailable, MalformedDocument: as `AsyncAnalyst.jobs`.
        """

        async def asked() -> list[ListedCrowd]:
            async with self._connect() as analyst:
                return await analyst.crowds(newest=newest)

        return run(asked())
