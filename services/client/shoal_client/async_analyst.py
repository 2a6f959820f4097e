"""An analyst's side of a job for asynchronous programs; it believes no report that is unsigned."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import httpx
import nacl.utils
import pydantic
from nacl.signing import SigningKey

from shoal_client.clock import Clock, system_clock
from shoal_client.crowds.analyst import AsyncCrowds, CrowdAnalyst
from shoal_client.insisting import PATIENT_TRIES, TRIES, Insisting, Notice, unheard
from shoal_client.job_failures import (
    WITHDRAWN,
    JobFailed,
    JobRefused,
    JobWithdrawn,
    OutOfBudget,
    failure,
)
from shoal_client.peer import ACCEPTED, OK, Peer
from shoal_client.withdrawing import tell_nodes
from shoal_hosting.exchange import Unavailable
from shoal_hosting.manifest_book import ManifestBook
from shoal_protocol.certificate_checks import verify_certificate
from shoal_protocol.certificates import ReleaseCertificate
from shoal_protocol.documents import Signed, decode, describe, sign
from shoal_protocol.errors import BudgetExceeded, MalformedDocument, UnknownJob, WrongPhase
from shoal_protocol.jobs import JobRequest, PosteriorReport, PrivacyDemand
from shoal_protocol.membership import JobWithdrawal
from shoal_protocol.phases import JobPhase, Phase
from shoal_protocol.schemes import ADDITIVE, Sharing
from shoal_protocol.sharing import RandomBytes
from shoal_protocol.tasks import Task

POLL_SECONDS: Final = 2  # between two states that `wait` shows
SHORTEST_PAUSE_SECONDS: Final = 0.1  # even if the trainer does not hold its answers back


class RoundState(pydantic.BaseModel):
    """What the trainer says of one round."""

    round: str
    number: int
    phase: str
    deadline: datetime | None = None


class JobState(pydantic.BaseModel):
    """What the trainer says of a job; nothing of it is signed.

    `round_counts` are of all its rounds by phase, `rounds` its newest ones in order.
    """

    job: str
    phase: JobPhase
    joined: int
    population_size: int | None = None
    round_counts: dict[str, int] = {}
    rounds: tuple[RoundState, ...] = ()
    reason: str | None = None
    left: int = 0  # clients, before or after the population was fixed
    ends_by: datetime | None = None  # when it is over at the latest

    @property
    def published(self) -> int:
        """How many rounds released a sum."""
        return self.round_counts.get(Phase.PUBLISHED.value, 0)

    @property
    def lost(self) -> int:
        """How many rounds ended without one."""
        return self.round_counts.get(Phase.ABANDONED.value, 0)


Progress = Callable[[JobState], None]


class AsyncAnalyst:
    """Submits jobs to the trainer and verifies what comes back. For use in one event loop."""

    def __init__(
        self,
        *,
        name: str,
        key: SigningKey,
        book: ManifestBook,
        clock: Clock = system_clock,
        random_bytes: RandomBytes = nacl.utils.random,
        transport: httpx.AsyncBaseTransport | None = None,
        notice: Notice = unheard,
    ) -> None:
        """Connect to the trainer; `notice` is told, once a request, that it does not answer."""
        self._name = name
        self._key = key
        self._book = book
        self._clock = clock
        self._random_bytes = random_bytes
        self._peer = partial(Peer, clock=clock, random_bytes=random_bytes, transport=transport)
        self._trainer = self._peer(book.current.manifest.trainer)
        self._insist = Insisting(self._trainer, notice)

    @property
    def crowds(self) -> AsyncCrowds:
        """Return what she does with crowd jobs, by the same connections."""
        return AsyncCrowds(
            CrowdAnalyst(self._name, self._key, self._book, self._clock, self._random_bytes),
            self._trainer,
            self._insist,
        )

    async def __aenter__(self) -> "AsyncAnalyst":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._trainer.close()

    def request(
        self,
        task: Task,
        *,
        privacy: PrivacyDemand,
        minimum_population: int,
        maximum_population: int,
        join_seconds: int,
        round_seconds: int,
        grace_seconds: int,
        sharing: Sharing = ADDITIVE,
    ) -> Signed[JobRequest]:
        """Return a signed job request, bound to the manifest in force; joining begins now."""
        request = JobRequest(
            manifest=self._book.current.digest,
            nonce=self._random_bytes(16).hex(),
            analyst=self._name,
            task=task,
            privacy=privacy,
            minimum_population=minimum_population,
            maximum_population=maximum_population,
            join_deadline=self._clock() + timedelta(seconds=join_seconds),
            round_seconds=round_seconds,
            grace_seconds=grace_seconds,
            sharing=sharing,
        )
        return sign(request, self._name, self._key)

    async def submit(self, request: Signed[JobRequest]) -> str:
        """Hand a request to the trainer and return the job's id. The same request is one job.

        Raises:
            OutOfBudget: too few clients can pay for it.
            JobRefused: the trainer does not take it, for another reason.
            Unavailable: the trainer did not answer, several times.
        """
        encoded = request.encode()
        answer = await self._insist(
            lambda: self._trainer.post("/v1/jobs", encoded, "application/json")
        )
        if answer.is_refusal:
            refusal = OutOfBudget if answer.code == BudgetExceeded.code else JobRefused
            raise refusal(answer.reason)
        return request.digest

    async def submitted(self, job: str) -> Signed[JobRequest]:
        """Return the request of a job that was submitted earlier, verified.

        Raises:
            JobFailed: the trainer does not know it.
            Unavailable: the trainer did not answer, several times.
            ProtocolError: what it shows is no analyst's request, or that of another job.
        """
        answer = await self._insist(lambda: self._trainer.get(f"/v1/jobs/{job}/request"))
        if answer.is_refusal:
            raise JobFailed(answer.reason)
        signed = decode(answer.body, JobRequest)
        self._book.get(signed.body.manifest).verify(signed)
        if signed.digest != job:
            raise UnknownJob("the request is of another job")
        return signed

    async def withdraw(self, job: str) -> None:
        """Withdraw a job of one's own: it asks nothing more, and budgets come free.

        What answered rounds cost stays charged. Every Compute node that answers is told, too.

        Raises:
            JobRefused: the job has ended, or is another analyst's.
            JobFailed: the trainer does not know it.
            Unavailable: the trainer did not answer, several times. The nodes may have been told.
        """
        request = await self.submitted(job)
        body = JobWithdrawal(manifest=request.body.manifest, job=job, analyst=self._name)
        if request.body.analyst != self._name:
            raise JobRefused(f"the job is {request.body.analyst}'s to withdraw")
        signed = sign(body, self._name, self._key)
        await tell_nodes(self._book.current.manifest.compute_nodes, self._peer, request, signed)
        path, encoded = f"/v1/jobs/{job}/withdrawal", signed.encode()
        answer = await self._insist(lambda: self._trainer.post(path, encoded, "application/json"))
        if answer.is_refusal:
            raise JobRefused(answer.reason)

    async def state(self, job: str, *, tries: int = TRIES) -> JobState:
        """Return what the trainer says of a job; give up after `tries` without an answer.

        Raises:
            JobFailed: the trainer does not know it.
            Unavailable: the trainer did not answer, several times.
            MalformedDocument: its answer is not a job's state.
        """
        answer = await self._insist(lambda: self._trainer.get(f"/v1/jobs/{job}"), tries)
        if answer.is_refusal:
            raise JobFailed(answer.reason)
        try:
            return JobState.model_validate(answer.json())
        except pydantic.ValidationError as error:
            raise MalformedDocument(describe(error, JobState)) from None

    async def report(
        self, job: str, *, wait_seconds: int, tries: int = TRIES
    ) -> Signed[PosteriorReport] | None:
        """Return the trainer's signed report, verified; None if there is none yet.

        The trainer holds its answer back for up to `wait_seconds` while there is none.

        Raises:
            JobFailed: the job ended without one: `JobWithdrawn` if it was withdrawn.
            Unavailable: the trainer did not answer, several times.
            ProtocolError: the report is not the trainer's, or is of another job.
        """
        path = f"/v1/jobs/{job}/result"
        answer = await self._insist(lambda: self._trainer.get_large(path, wait=wait_seconds), tries)
        if answer.status == ACCEPTED:
            return None
        if answer.status != OK:
            raise failure(answer)
        signed = decode(answer.body, PosteriorReport)
        self._book.get(signed.body.manifest).verify(signed)
        if signed.body.job != job:
            raise UnknownJob("the report is of another job")
        return signed

    async def certificate(self, job: str, *, tries: int = TRIES) -> bytes | None:
        """Return the job's release certificate, verified; None while the job is not finished.

        They are the bytes that anyone can check again, offline, by the manifest.

        Raises:
            JobFailed: the job ended without one.
            Unavailable: no answer, several times, or a Compute node did not sign its total yet.
            ProtocolError: it does not hold, or is of another job.
        """
        path, seconds = f"/v1/jobs/{job}/certificate", 10  # a large one takes some
        answer = await self._insist(lambda: self._trainer.get_large(path, wait=seconds), tries)
        if answer.is_refusal and answer.code == WrongPhase.code:
            return None
        if answer.is_refusal and answer.code == "certificate-incomplete":
            raise Unavailable(answer.reason)
        if answer.status != OK:
            raise failure(answer)
        body = decode(answer.body, ReleaseCertificate).body
        manifest = self._book.get(body.manifest).signed_manifest.encode()
        verified = await asyncio.to_thread(
            verify_certificate, answer.body, manifest, known=self._book.versions
        )
        if verified.certificate.job != job:
            raise UnknownJob("the certificate is of another job")
        return answer.body

    async def wait(self, job: str, progress: Progress) -> Signed[PosteriorReport]:
        """Wait for the signed report, verified; `progress` is called with each new state.

        Raises:
            JobFailed, Unavailable, ProtocolError: as `report`.
        """
        last = None
        while True:
            state = await self.state(job, tries=PATIENT_TRIES)
            if state != last:
                progress(state)
                last = state
            if state.phase is JobPhase.WITHDRAWN:
                raise JobWithdrawn(WITHDRAWN)
            if state.phase is JobPhase.FAILED:
                raise JobFailed(state.reason or "the trainer gives no reason")
            finished = state.phase is JobPhase.FINISHED
            seconds = 0 if finished else POLL_SECONDS
            signed = await self.report(job, wait_seconds=seconds, tries=PATIENT_TRIES)
            if signed is not None:
                if not finished:
                    progress(await self.state(job))
                return signed
            await asyncio.sleep(SHORTEST_PAUSE_SECONDS)
