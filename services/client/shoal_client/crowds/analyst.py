"""An analyst's side of crowd jobs: open one, watch it, take its model, verify how it ended.

While a job is open nothing that the trainer says of it is signed but request, opening and draws;
once it is closed, everything is bound by its closing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar

import pydantic
from nacl.signing import SigningKey

from shoal_client.clock import Clock
from shoal_client.crowds.audit import verify_logs
from shoal_client.crowds.crowd import Crowd
from shoal_client.crowds.states import CrowdList, CrowdProgress, CrowdState, ListedCrowd, Snapshot
from shoal_client.crowds.trainer import CrowdRefused, CrowdTrainer
from shoal_client.insisting import PATIENT_TRIES, TRIES, Insisting
from shoal_client.job_failures import JobFailed, JobRefused
from shoal_client.peer import OK, Answer, Peer
from shoal_hosting.manifest_book import ManifestBook
from shoal_protocol.documents import Signed, describe, sign
from shoal_protocol.draw_and_discard.documents import (
    CrowdClosing,
    CrowdClosingRequest,
    CrowdJobRequest,
)
from shoal_protocol.draw_and_discard.draws import check_closing
from shoal_protocol.draw_and_discard.evidence import CrowdEvidence
from shoal_protocol.draw_and_discard.model import CrowdModel
from shoal_protocol.draw_and_discard.tasks import CrowdTask
from shoal_protocol.errors import MalformedDocument
from shoal_protocol.phases import CrowdPhase
from shoal_protocol.sharing import RandomBytes

WAIT_SECONDS: Final = 2  # between two states that `wait` shows
LARGEST_START: Final = 100.0  # of what begins further off, a crowd would hardly come back
SHORTEST_PAUSE_SECONDS: Final = 0.1  # even if the trainer does not hold its answers back

T = TypeVar("T")


Shape = TypeVar("Shape", bound=pydantic.BaseModel)


@dataclass(frozen=True)
class CrowdAnalyst:
    """Who asks, by what she trusts."""

    name: str
    key: SigningKey = field(repr=False)
    book: ManifestBook
    clock: Clock
    random_bytes: RandomBytes


class AsyncCrowds:
    """Crowd jobs, for use in one event loop: `AsyncAnalyst.crowds`.

    Every method raises `Unavailable` if the trainer did not answer, several times.
    """

    def __init__(self, analyst: CrowdAnalyst, trainer: Peer, insist: Insisting) -> None:
        """Ask `trainer`, by `insist`."""
        self._analyst = analyst
        self._peer = trainer
        self._trainer = CrowdTrainer(lambda: trainer)
        self._insist = insist

    def request(
        self,
        task: CrowdTask,
        *,
        contributions: int,
        contributions_per_client: int,
        contributions_per_record: int,
        session_seconds: int,
        open_seconds: int,
    ) -> Signed[CrowdJobRequest]:
        """Return a signed request, bound to the manifest in force, of a job that is open from now.

        Raises:
            ValueError: an argument is out of range.
        """
        if task.start is not None and max(map(abs, task.start)) > LARGEST_START:
            raise ValueError(
                f"no weight of start may be above {LARGEST_START:g} in magnitude: they are of "
                "normalised columns; `shoal crowd model --start` prints a model's"
            )
        own = self._analyst
        request = CrowdJobRequest(
            manifest=own.book.current.digest,
            nonce=own.random_bytes(16).hex(),
            analyst=own.name,
            task=task,
            contributions=contributions,
            contributions_per_client=contributions_per_client,
            contributions_per_record=contributions_per_record,
            session_seconds=session_seconds,
            closes_at=own.clock() + timedelta(seconds=open_seconds),
        )
        return sign(request, own.name, own.key)

    async def open(self, request: Signed[CrowdJobRequest]) -> str:
        """Hand a request to the trainer and return the job's id. The same request is one job.

        Raises:
            JobRefused: the trainer does not take it.
        """
        encoded = request.encode()
        answer = await self._insist(
            lambda: self._peer.post("/v1/crowds", encoded, "application/json")
        )
        if answer.is_refusal:
            raise JobRefused(answer.reason)
        return request.digest

    async def listed(self) -> Sequence[ListedCrowd]:
        """Return the trainer's crowd jobs, of all analysts.

        Raises:
            MalformedDocument: its answer is no list of them.
        """
        return (await self._read(CrowdList, "/v1/crowds")).crowds

    async def state(self, job: str, *, tries: int = TRIES) -> CrowdState:
        """Return what the trainer says of a job.

        Raises:
            JobFailed: the trainer does not know it.
            MalformedDocument: its answer is no state.
        """
        return await self._read(CrowdState, f"/v1/crowds/{job}", tries)

    async def request_of(self, job: str) -> CrowdJobRequest:
        """Return what was asked for, as its analyst signed it.

        Raises:
            JobFailed, ProtocolError: as `crowd`.
        """
        signed = await self._asked(lambda: self._trainer.request(job))
        self._analyst.book.get(signed.body.manifest).verify(signed)
        return signed.body

    async def crowd(self, job: str) -> Crowd:
        """Return a job's request and opening, verified.

        Raises:
            JobFailed: the trainer does not know it.
            ProtocolError: what it shows was not signed as it should be, or is another job's.
        """
        request = await self._asked(lambda: self._trainer.request(job))
        consortium = self._analyst.book.get(request.body.manifest)
        return await self._asked(lambda: self._trainer.crowd(job, consortium))

    async def snapshot(self, crowd: Crowd) -> CrowdModel:
        """Return the model as it is now, by the trainer's word.

        Raises:
            JobFailed, MalformedDocument: as `state`.
        """
        found = await self._read(Snapshot, f"/v1/crowds/{crowd.job}/instances")
        try:
            return CrowdModel(
                task=crowd.request.task,
                contributions=found.contributions,
                instances=tuple(each.weights for each in found.instances),
            )
        except pydantic.ValidationError as error:
            raise MalformedDocument(describe(error, CrowdModel)) from None

    async def closing(
        self, crowd: Crowd, *, wait_seconds: int = 0, tries: int = TRIES
    ) -> Signed[CrowdClosing] | None:
        """Return the job's closing, which follows from its opening; None while it is open.

        Raises:
            JobFailed: the trainer does not know the job.
            ProtocolError: the closing is not the trainer's, or does not follow.
        """
        signed = await self._asked(
            lambda: self._trainer.closing(crowd, wait_seconds=wait_seconds), tries
        )
        if signed is not None:
            now = self._analyst.clock()
            check_closing(signed.body, crowd.opening, crowd.request, crowd.consortium, now=now)
        return signed

    async def evidence(self, crowd: Crowd) -> CrowdEvidence:
        """Return what the trainer shows here of a job, to be compared with what it shows others.

        Raises:
            JobFailed, ProtocolError: as `closing`.
        """
        opening = await self._asked(lambda: self._trainer.opening(crowd.job))
        shown = CrowdEvidence(opening=opening, closing=await self.closing(crowd))
        shown.check(crowd.consortium)
        return shown

    async def close(self, crowd: Crowd) -> Signed[CrowdClosing]:
        """Have the job closed now, by a signed request; return its closing, whatever closed it.

        Raises:
            JobRefused: the trainer does not: the job is another analyst's.
            ProtocolError: as `closing`.
            JobFailed: it says that it closed the job, and shows no closing.
        """
        own, job = self._analyst, crowd.job
        asked = CrowdClosingRequest(manifest=crowd.request.manifest, job=job, analyst=own.name)
        encoded = sign(asked, own.name, own.key).encode()
        answer = await self._insist(
            lambda: self._peer.post(f"/v1/crowds/{job}/closing", encoded, "application/json")
        )
        if answer.is_refusal:
            raise JobRefused(answer.reason)
        closing = await self.closing(crowd)
        if closing is None:
            raise JobFailed("the trainer took the request to close the job, and it is still open")
        return closing

    async def verify(self, crowd: Crowd) -> Signed[CrowdClosing] | None:
        """Return the closing, after following the whole log of every instance; None if open.

        Raises:
            JobFailed: the trainer does not know the job.
            ProtocolError: a log is no chain from the opening to the closing, as the seed has it.
        """
        signed = await self.closing(crowd)
        if signed is not None:
            closing = signed.body
            await self._asked(lambda: verify_logs(self._trainer, crowd, closing))
        return signed

    async def wait(self, job: str, progress: CrowdProgress) -> CrowdModel:
        """Wait until the job is closed and return what it ended with, by its signed closing.

        `progress` is called with each new state.

        Raises:
            JobFailed, ProtocolError: as `closing`.
        """
        crowd, last = await self.crowd(job), None
        while True:
            state = await self.state(job, tries=PATIENT_TRIES)
            if state != last:
                progress(state)
                last = state
            seconds = 0 if state.phase is CrowdPhase.CLOSED else WAIT_SECONDS
            closing = await self.closing(crowd, wait_seconds=seconds, tries=PATIENT_TRIES)
            if closing is not None:
                if state.phase is not CrowdPhase.CLOSED:
                    progress(await self.state(job))
                return CrowdModel.closed(crowd.request.task, closing.body)
            await asyncio.sleep(SHORTEST_PAUSE_SECONDS)

    async def later(self, crowd: Crowd, *, seconds: float) -> tuple[CrowdModel, bool]:
        """Return the model after so many seconds, and whether the job is closed and it the last.

        It returns as soon as the job is closed.

        Raises:
            JobFailed, ProtocolError: as `closing` and `snapshot`.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            wait = int(min(WAIT_SECONDS, max(0.0, until - loop.time())))
            closing = await self.closing(crowd, wait_seconds=wait, tries=PATIENT_TRIES)
            if closing is not None:
                return CrowdModel.closed(crowd.request.task, closing.body), True
            if loop.time() >= until:
                return await self.snapshot(crowd), False
            await asyncio.sleep(SHORTEST_PAUSE_SECONDS)

    async def _read(self, shape: type[Shape], path: str, tries: int = TRIES) -> Shape:
        answer = await self._insist(lambda: self._peer.get(path), tries)
        return _shaped(shape, answer)

    async def _asked(self, request: Callable[[], Awaitable[T]], tries: int = TRIES) -> T:
        try:
            return await self._insist(request, tries)
        except CrowdRefused as refusal:
            raise JobFailed(str(refusal)) from None


def _shaped(shape: type[Shape], answer: Answer) -> Shape:
    if answer.status != OK:
        raise JobFailed(answer.reason)
    value: Any = answer.json()
    try:
        return shape.model_validate(value)
    except pydantic.ValidationError as error:
        raise MalformedDocument(describe(error, shape)) from None
