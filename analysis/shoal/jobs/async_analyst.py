"""An analyst's client for asynchronous programs: submits jobs and finds them again."""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import nacl.utils
from nacl.signing import SigningKey

from shoal.jobs.async_jobs import AsyncJob, BoundT, Identity, Line, TaskT, key_in, refuse, shaped
from shoal.jobs.crowd_job import AsyncCrowdJob
from shoal.jobs.job_check import (
    DeclarationPage,
    JobCheckReport,
    TrainersWord,
    newest,
    report,
)
from shoal.jobs.job_failures import JobRefused
from shoal.jobs.job_settings import CrowdSettings, JobSettings, Settings
from shoal.jobs.job_states import CrowdsPage, JobsPage, ListedCrowd, ListedJob
from shoal.jobs.retry import Notice, Retry, unheard
from shoal_hosting.clock import Clock, system_clock
from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_hosting.party import Party, load_party, read_pin
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.peer import Peer
from shoal_protocol.certificates.study_request import JobCheck, JobsQuery
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.studies import Task
from shoal_protocol.trust.dictionary import (
    Category,
    DataDictionary,
    Date,
    Flag,
    Number,
    read_dictionary,
)
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import decode_clients
from shoal_protocol.wire.errors import ProtocolError

_PAGE: Final = 1000  # jobs

PageT = TypeVar("PageT", JobsPage, CrowdsPage)


def opened(party: Path, consortium: Path) -> tuple[Party, ManifestBook]:
    """Return an analyst's identity, and the manifest versions that she trusts.

    Raises:
        StartupRefused: a file is missing, open to others, or not what the pin vouches for.
    """
    return load_party(party), ManifestBook.open(consortium, read_pin(party), party)


class AsyncAnalyst:
    """Submits jobs to the trainer and finds them again. For use in one event loop."""

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
        """Connect to the trainer; `notice` is told, once a request, that it does not answer.

        `key` may return the key by the version of the manifest, for an analyst who changed hers.
        """
        self.identity = Identity(name, key_in(key), book, clock, random_bytes)
        connect = partial(
            Peer, clock=clock, random_bytes=random_bytes, transport=transport, book=book
        )
        trainer = connect(book.current.manifest.trainer)
        self._line = Line(trainer, Retry(trainer, notice), connect, partial(_former_trainers, book))

    @classmethod
    def open(
        cls,
        party: str | PathLike[str],
        consortium: str | PathLike[str],
        *,
        notice: Notice = unheard,
    ) -> "AsyncAnalyst":
        """Open an analyst's party directory and the consortium's public directory.

        Raises:
            StartupRefused: as `Analyst.open`.
        """
        identity, book = opened(Path(party), Path(consortium))
        return cls(name=identity.name, key=identity.signing_key_in, book=book, notice=notice)

    async def __aenter__(self) -> "AsyncAnalyst":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._line.trainer.close()

    async def catch_up(self) -> None:
        """Follow the manifest to the version in force, if the trainer answers."""
        with suppress(Unavailable, ProtocolError):
            await self._line.trainer.catch_up()

    async def request(self, task: TaskT, settings: Settings[TaskT, BoundT]) -> Signed[BoundT]:
        """Return a signed request of a job, bound to the manifest in force.

        Raises:
            ValueError: an argument is out of range; nobody was asked for a manifest then.
        """
        self.identity.request(task, settings)
        await self.catch_up()
        return self.identity.request(task, settings)

    def job(self, job: str) -> AsyncJob:
        """Return the handle of a job in rounds, from its id."""
        return AsyncJob(job, self.identity, self._line)

    def crowd(self, job: str) -> AsyncCrowdJob:
        """Return the handle of a crowd job, from its id."""
        return AsyncCrowdJob(job, self.identity, self._line)

    async def submit(self, task: Task, settings: JobSettings) -> AsyncJob:
        """Submit a job in rounds and return its handle.

        Raises:
            ValueError, OutOfBudget, JobRefused, Unavailable: as `Analyst.submit`.
        """
        request = await self.request(task, settings)
        job = self.job(request.digest)
        await job.hand_in(request)
        return job

    async def dictionary(self) -> DataDictionary:
        """Return the consortium's data dictionary, verified by the authority's signature.

        Raises:
            JobRefused: there is none.
            Unavailable: the trainer did not answer, several times.
            ProtocolError: it is not signed as it should be.
        """
        answer = await self._line.retry(lambda: self._line.trainer.get("/v1/dictionary"))
        refuse(answer)
        parties = self.identity.book.current
        return read_dictionary(answer.body, parties).body

    async def variables(self) -> dict[str, Number | Flag | Category | Date]:
        """Return the dictionary's variables by name, indicators too; none without a dictionary.

        Raises:
            Unavailable, ProtocolError: as `dictionary`.
        """
        with suppress(JobRefused):
            return (await self.dictionary()).named()
        return {}

    async def check(self, task: Task, settings: JobSettings) -> JobCheckReport:
        """Say what would become of a job in rounds. Nothing is submitted, and nothing is spent.

        Raises:
            ValueError, JobRefused, Unavailable: as `Analyst.check`.
        """
        own, request = self.identity, (await self.request(task, settings)).body
        asked = own.signed(JobCheck(manifest=request.manifest, analyst=own.name, request=request))
        answer = await self._line.post("/v1/jobs/check", asked)
        refuse(answer)
        word = shaped(answer, TrainersWord)
        documents: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            path = f"/v1/declarations/list?after={after}"
            answer = await self._line.post(path, self._query())
            refuse(answer)
            page = shaped(answer, DeclarationPage)
            documents += page.documents
            after = page.next if page.next is None or page.next > after else None
        declared = newest(documents, own.book)
        return report(request, word, decode_clients(word.able), declared, own.book, now=own.clock())

    def _query(self, after: int = 0, count: int = 1) -> Signed[JobsQuery]:
        own = self.identity
        query = JobsQuery(
            manifest=own.book.current.digest,
            analyst=own.name,
            at=own.clock(),
            after=after,
            count=count,
        )
        return own.signed(query)

    async def jobs(self, *, newest: int | None = None) -> JobsPage:
        """Return the trainer's jobs in rounds, of all analysts, the newest first, or so many.

        With them come groups of clients by the epsilon that each of them has left.

        Raises:
            JobRefused: the trainer does not know the analyst, or her clock is wrong.
            Unavailable: the trainer did not answer, several times.
            MalformedDocument: the answer is no such list.
        """
        await self.catch_up()
        found: dict[str, ListedJob] = {}  # others come in meanwhile, and move these
        async for page in self._pages("/v1/jobs/list", JobsPage, newest):
            found |= {each.job: each for each in page.jobs}
        return page.model_copy(update={"jobs": tuple(found.values())})

    async def _pages(
        self, path: str, shape: type[PageT], newest: int | None
    ) -> AsyncIterator[PageT]:
        """Yield the pages of a list at the trainer, the newest first, up to so many in all.

        Raises:
            JobRefused, Unavailable, MalformedDocument: as `jobs`.
        """
        after, more = 0, True
        while more:
            count = _PAGE if newest is None else min(_PAGE, newest - after)
            answer = await self._line.post(path, self._query(after, count))
            refuse(answer)
            page = shaped(answer, shape)
            yield page
            more = page.next is not None and page.next > after and page.next != newest
            after = page.next or 0

    async def open_crowd(self, task: CrowdTask, settings: CrowdSettings) -> AsyncCrowdJob:
        """Open a crowd job and return its handle.

        Raises:
            ValueError, JobRefused, Unavailable: as `Analyst.open_crowd`.
        """
        request = await self.request(task, settings)
        job = self.crowd(request.digest)
        await job.hand_in(request)
        return job

    async def crowds(self, *, newest: int | None = None) -> list[ListedCrowd]:
        """Return the trainer's crowd jobs, of all analysts, the newest first, or so many.

        Raises:
            JobRefused, Unavailable, MalformedDocument: as `jobs`.
        """
        await self.catch_up()
        found: dict[str, ListedCrowd] = {}
        async for page in self._pages("/v1/crowds/list", CrowdsPage, newest):
            found |= {each.job: each for each in page.crowds}
        return list(found.values())


def _former_trainers(book: ManifestBook) -> list[ServiceParty]:
    """Return the trainers before the one in force, as they were listed last, the newest first."""
    found = {each.manifest.trainer.name: each.manifest.trainer for each in book.versions}
    del found[book.current.manifest.trainer.name]
    return [*reversed(found.values())]
