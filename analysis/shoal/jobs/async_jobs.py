"""Handles of jobs at the trainer for asynchronous programs; results are verified by signature.

Both kinds of job share `JobHandle`. `AsyncJob`, which learns in rounds, is here; `AsyncCrowdJob`,
which learns by Draw and Discard, is in `crowd_job.py`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, TypeVar

import pydantic
from nacl.signing import SigningKey

from shoal.jobs.job_failures import JobFailed, JobRefused, OutOfBudget, failure, naming_columns
from shoal.jobs.job_settings import Settings
from shoal.jobs.job_states import CrowdState, JobState
from shoal.jobs.retry import PATIENT_TRIES, TRIES, Retry
from shoal_hosting.clock import Clock
from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_hosting.peers.exchange import Unavailable
from shoal_hosting.peers.peer import ACCEPTED, OK, Answer, Peer
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.packing import read_certificate, unpack
from shoal_protocol.certificates.posterior_report import PosteriorReport
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.crowds.documents import CrowdJobRequest
from shoal_protocol.jobs.membership import JobWithdrawal
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.wire.documents import BoundDocument, Signed, decode, describe, sign
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import MalformedDocument, UnknownJob, UnknownManifest, WrongPhase
from shoal_protocol.wire.service_errors import BudgetExceeded

POLL_SECONDS: Final = 2  # between two states that `wait` shows
SHORTEST_PAUSE_SECONDS: Final = 0.1  # even if the trainer does not hold its answers back
CERTIFICATE_SECONDS: Final = 10  # a large one takes some
JSON: Final = "application/json"

TaskT = TypeVar("TaskT")
BoundT = TypeVar("BoundT", bound=BoundDocument)
RequestT = TypeVar("RequestT", StudyRequest, CrowdJobRequest)
StateT = TypeVar("StateT", JobState, CrowdState)
ResultT = TypeVar("ResultT")
Shape = TypeVar("Shape", bound=pydantic.BaseModel)


@dataclass(frozen=True)
class Identity:
    """The analyst who asks, her key by a manifest's version, and the versions that she trusts."""

    name: str
    key_in: Callable[[Consortium], SigningKey] = field(repr=False)
    book: ManifestBook
    clock: Clock
    random_bytes: RandomBytes

    def request(self, task: TaskT, settings: Settings[TaskT, BoundT]) -> Signed[BoundT]:
        """Return a signed request, bound to the manifest in force, of a job that begins now.

        Raises:
            ValueError: a setting is out of range.
        """
        body = settings.request(
            task,
            manifest=self.book.current.digest,
            nonce=self.random_bytes(16).hex(),
            analyst=self.name,
            now=self.clock(),
        )
        return self.signed(body)

    def signed(self, body: BoundT) -> Signed[BoundT]:
        """Sign what she asks for, by the key of the version that it is bound to."""
        return sign(body, self.name, self.key_in(self.book.get(body.manifest)))


def key_in(
    key: SigningKey | Callable[[Consortium], SigningKey],
) -> Callable[[Consortium], SigningKey]:
    """Return what gives an analyst's key by a version, from that or from her one key."""
    return (lambda _: key) if isinstance(key, SigningKey) else key


@dataclass(frozen=True)
class Line:
    """Connections to the parties, and the retries of requests."""

    trainer: Peer
    retry: Retry
    connect: Callable[[ServiceParty], Peer]
    former: Callable[[], Sequence[ServiceParty]]
    """The trainers before this one, the newest first: their jobs are theirs to show."""

    async def ask(self, request: Callable[[Peer], Awaitable[Answer]], tries: int = TRIES) -> Answer:
        """Return the trainer's answer; on a job that it does not know, one of a former trainer.

        Raises:
            Unavailable: the trainer did not answer, several times; or nobody who answers knows the
                job, and a former trainer does not answer.
        """
        answer = await self.retry(lambda: request(self.trainer), tries)
        if not _is_unknown(answer):
            return answer
        silent = []
        for party in self.former():
            peer = self.connect(party)
            try:
                earlier = await request(peer)
            except Unavailable:  # it may be switched off
                silent.append(f"{party.name} at {party.url}")
            else:
                if not _is_unknown(earlier):
                    return earlier
            finally:
                await peer.close()
        if silent:
            raise Unavailable(
                "the trainer does not know the job, and who was the trainer before does not "
                f"answer: {', '.join(silent)}. Have it started again if the job is one of its own; "
                "else the job's id is wrong"
            )
        return answer

    async def read(self, shape: type[Shape], path: str, tries: int = TRIES) -> Shape:
        """Return what the trainer says, in the shape it must have.

        Raises:
            JobFailed: the trainer refuses, as where it does not know a job.
            Unavailable: the trainer did not answer, several times.
            MalformedDocument: the answer has another shape.
        """
        answer = await self.ask(lambda trainer: trainer.get(path), tries)
        if answer.status != OK:
            raise JobFailed(answer.reason)
        return shaped(answer, shape)

    async def post(self, path: str, document: Signed[Any]) -> Answer:
        """Send a document.

        Raises:
            Unavailable: the trainer did not answer, several times.
        """
        encoded = document.encode()
        return await self.retry(lambda: self.trainer.post(path, encoded, JSON))

    async def tell(self, job: str, what: str, document: Signed[Any]) -> Answer:
        """Send a document below a job's path to the trainer that has the job, as `ask`.

        Raises:
            Unavailable: the trainer did not answer, several times.
        """
        encoded = document.encode()

        async def send(trainer: Peer) -> Answer:
            known = await trainer.get(job)  # a peer takes a 404 to what is sent for "try later"
            return known if known.is_refusal else await trainer.post(f"{job}/{what}", encoded, JSON)

        return await self.ask(send)


def _is_unknown(answer: Answer) -> bool:
    return answer.is_refusal and answer.code == UnknownJob.code


def shaped(answer: Answer, shape: type[Shape]) -> Shape:
    """Return what an answer says, in the shape it must have.

    Raises:
        MalformedDocument: it has another one.
    """
    try:
        return shape.model_validate(answer.json())
    except pydantic.ValidationError as error:
        raise MalformedDocument(describe(error, shape)) from None


def refuse(answer: Answer, request: StudyRequest | CrowdJobRequest | None = None) -> None:
    """Raise what a refusal of a job says; any other answer is left to the caller.

    Raises:
        OutOfBudget: too few clients can pay for it.
        JobRefused: the trainer does not take it, for another reason.
    """
    if answer.is_refusal:
        refusal = OutOfBudget if answer.code == BudgetExceeded.code else JobRefused
        said = answer.reason
        raise refusal(said if request is None else naming_columns(said, request))


class JobHandle(ABC, Generic[RequestT, StateT, ResultT]):
    """A job at the trainer, by its id.

    Every method raises `Unavailable` if the trainer did not answer, several times, `JobFailed`
    if it does not know the job, and `ProtocolError` for what is not signed as it should be.
    """

    _path: ClassVar[str]
    _request_type: type[RequestT]
    _state_type: type[StateT]

    def __init__(self, job: str, identity: Identity, line: Line) -> None:
        """Ask for `job` in the name of `identity`, by `line`."""
        self.id = job
        self._identity = identity
        self._line = line

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    async def hand_in(self, request: Signed[RequestT]) -> None:
        """Hand the job's request to the trainer. The same request is the same job.

        Raises:
            OutOfBudget: too few clients can pay for it.
            JobRefused: the trainer does not take it, for another reason.
        """
        refuse(await self._line.post(self._path, request), request.body)

    async def request(self) -> RequestT:
        """Return the job's request, as its analyst signed it."""
        return (await self._submitted()).body

    async def _submitted(self) -> Signed[RequestT]:
        path = f"{self._path}/{self.id}/request"
        answer = await self._line.ask(lambda trainer: trainer.get(path))
        if answer.is_refusal:
            raise JobFailed(answer.reason)
        signed = decode(answer.body, self._request_type)
        (await self._consortium(signed.body.manifest)).verify(signed)
        if signed.digest != self.id:
            raise UnknownJob("the request is of another job")
        return signed

    async def _consortium(self, manifest: str) -> Consortium:
        """Return a version; one that is not known here is asked for, and must follow ours."""
        book = self._identity.book
        with suppress(UnknownManifest):
            return book.get(manifest)
        await self._line.retry(self._line.trainer.catch_up)
        try:
            return book.get(manifest)
        except UnknownManifest:
            raise UnknownManifest(
                f"the job is bound to the manifest {manifest}, which is not among the versions at "
                f"hand, {book.versions[0].manifest.sequence} to {book.current.manifest.sequence}: "
                "get the consortium's directory of now, with its whole history"
            ) from None

    async def state(self, *, tries: int = TRIES) -> StateT:
        """Return the job's present state by the trainer's word, unsigned."""
        return await self._line.read(self._state_type, f"{self._path}/{self.id}", tries)

    @abstractmethod
    async def result(self, *, wait_seconds: int = 0, tries: int = TRIES) -> ResultT | None:
        """Return the job's verified result, or None if there is none yet."""

    async def wait(self, progress: Callable[[StateT], None] = lambda state: None) -> ResultT:
        """Wait for the verified result; `progress` is called with each new state.

        Raises:
            JobFailed: the job ended without one: `JobWithdrawn` if it was withdrawn.
        """
        last = None
        while True:
            state = await self.state(tries=PATIENT_TRIES)
            if state != last:
                progress(state)
                last = state
            if state.failure is not None:
                raise state.failure
            seconds = 0 if state.has_result else POLL_SECONDS
            result = await self.result(wait_seconds=seconds, tries=PATIENT_TRIES)
            if result is not None:
                if not state.has_result:
                    progress(await self.state())
                return result
            await asyncio.sleep(SHORTEST_PAUSE_SECONDS)


class AsyncJob(JobHandle[StudyRequest, JobState, PosteriorReport]):
    """A job in rounds; see `Job`."""

    _path = "/v1/jobs"
    _request_type = StudyRequest
    _state_type = JobState

    async def result(self, *, wait_seconds: int = 0, tries: int = TRIES) -> PosteriorReport | None:
        """Return the verified report, or None if there is none yet.

        The trainer holds its answer back for up to `wait_seconds` while there is none.

        Raises:
            JobFailed: the job ended without one: `JobWithdrawn` if it was withdrawn.
        """
        answer = await self._get_large("result", wait_seconds, tries)
        if answer.status == ACCEPTED:
            return None
        if answer.status != OK:
            raise failure(answer)
        signed = decode(answer.body, PosteriorReport)
        (await self._consortium(signed.body.manifest)).verify(signed)
        if signed.body.job != self.id:
            raise UnknownJob("the report is of another job")
        return signed.body

    async def certificate(self, *, tries: int = TRIES) -> bytes | None:
        """Return the verified release certificate, or None if the job is not finished.

        These bytes, kept as they are, can be checked by anyone who has the consortium's manifest:
        `shoal certificate verify`.

        Raises:
            JobFailed: the job ended without one.
            Unavailable: no answer, several times, or a Compute node did not sign its total yet.
        """
        answer = await self._get_large("certificate", CERTIFICATE_SECONDS, tries)
        if answer.is_refusal and answer.code == WrongPhase.code:
            return None
        if answer.is_refusal and answer.code == "certificate-incomplete":
            raise Unavailable(answer.reason)
        if answer.status != OK:
            raise failure(answer)
        encoded = await asyncio.to_thread(unpack, answer.body)
        bound_to = read_certificate(encoded).body.manifest
        await self._consortium(bound_to)  # and those before it, if it is new here
        book = self._identity.book
        verified = await asyncio.to_thread(
            verify_certificate,
            encoded,
            book.current.signed_manifest.encode(),
            known=book.versions,
        )
        if verified.certificate.job != self.id:
            raise UnknownJob("the certificate is of another job")
        return encoded

    async def withdraw(self) -> None:
        """Withdraw the job: it asks nothing more, and reserved budgets are freed.

        What answered rounds cost stays charged. Who waits for it gets `JobWithdrawn`. Every
        Compute node that answers is told first, so that no trainer goes on with it.

        Raises:
            JobRefused: the job has ended, or is another analyst's.
        """
        request, own = await self._submitted(), self._identity
        if request.body.analyst != own.name:
            raise JobRefused(f"the job is {request.body.analyst}'s to withdraw")
        signed = own.signed(
            JobWithdrawal(manifest=request.body.manifest, job=self.id, analyst=own.name)
        )
        told = canonical_json({"request": request.to_json(), "withdrawal": signed.to_json()})
        nodes = own.book.current.manifest.compute_nodes
        await asyncio.gather(*(self._tell(node, told) for node in nodes))
        answer = await self._line.tell(f"{self._path}/{self.id}", "withdrawal", signed)
        if answer.is_refusal:
            raise JobRefused(answer.reason)

    async def _tell(self, party: ServiceParty, withdrawal: bytes) -> None:
        """Send a node the withdrawal, if it answers; rounds need most nodes, so most suffice."""
        node = self._line.connect(party)
        try:
            await node.post("/v1/withdrawals", withdrawal, JSON)
        except Unavailable:
            return
        finally:
            await node.close()

    async def _get_large(self, what: str, wait_seconds: int, tries: int) -> Answer:
        path = f"{self._path}/{self.id}/{what}"
        return await self._line.ask(
            lambda trainer: trainer.get_large(path, wait=wait_seconds), tries
        )
