"""A crowd job for asynchronous programs: take its model, close it, verify how it ended."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pydantic

from shoal.jobs.async_jobs import Identity, JobHandle, Line
from shoal.jobs.job_failures import JobFailed, JobRefused
from shoal.jobs.job_states import CrowdState, Snapshot
from shoal.jobs.retry import TRIES
from shoal_agent.crowds.trainer import CrowdRefused, CrowdTrainer
from shoal_holder.crowds.crowd import Crowd
from shoal_learning.crowds.model import CrowdModel
from shoal_protocol.crowds.documents import CrowdClosing, CrowdClosingRequest, CrowdJobRequest
from shoal_protocol.crowds.draws import check_closing
from shoal_protocol.wire.documents import Signed, describe
from shoal_protocol.wire.errors import MalformedDocument

T = TypeVar("T")


class AsyncCrowdJob(JobHandle[CrowdJobRequest, CrowdState, CrowdModel]):
    """A crowd job; see `CrowdJob`.

    While it is open nothing that the trainer says of it is signed but request, opening and draws;
    once it is closed, everything is bound by its closing.
    """

    _path = "/v1/crowds"
    _request_type = CrowdJobRequest
    _state_type = CrowdState

    def __init__(self, job: str, identity: Identity, line: Line) -> None:
        """Ask for `job` in the name of `identity`, by `line`."""
        super().__init__(job, identity, line)
        self._trainer = CrowdTrainer(lambda: line.trainer)
        self._crowd: Crowd | None = None

    async def crowd(self) -> Crowd:
        """Return the job's request and opening, verified."""
        if self._crowd is None:
            consortium = await self._consortium((await self.request()).manifest)
            self._crowd = await self._asked(lambda: self._trainer.crowd(self.id, consortium))
        return self._crowd

    async def snapshot(self) -> CrowdModel:
        """Return the model as it is now, by the trainer's word.

        Raises:
            ProtocolError: it is no model of the job's task.
        """
        crowd = await self.crowd()
        found = await self._line.read(Snapshot, f"{self._path}/{self.id}/instances")
        try:
            return CrowdModel(
                task=crowd.request.task,
                contributions=found.contributions,
                instances=tuple(each.weights for each in found.instances),
            )
        except pydantic.ValidationError as error:
            raise MalformedDocument(describe(error, CrowdModel)) from None

    async def closing(
        self, *, wait_seconds: int = 0, tries: int = TRIES
    ) -> Signed[CrowdClosing] | None:
        """Return the job's closing, which follows from its opening; None while it is open."""
        crowd = await self.crowd()
        signed = await self._asked(
            lambda: self._trainer.closing(crowd, wait_seconds=wait_seconds), tries
        )
        if signed is not None:
            now = self._identity.clock()
            check_closing(signed.body, crowd.opening, crowd.request, crowd.consortium, now=now)
        return signed

    async def result(self, *, wait_seconds: int = 0, tries: int = TRIES) -> CrowdModel | None:
        """Return the model by the signed closing, or None while the job is open."""
        closing = await self.closing(wait_seconds=wait_seconds, tries=tries)
        if closing is None:
            return None
        return CrowdModel.closed((await self.crowd()).request.task, closing.body)

    async def close(self) -> CrowdClosing:
        """Have the job closed now, for good; return its closing, which says so.

        Only the analyst who opened a job can. What was contributed stays in the model; draws that
        were not answered by now are refused. A job that is closed stays as it is.

        Raises:
            JobRefused: it is another analyst's.
            JobFailed: the trainer says that it closed the job, and shows no closing.
        """
        crowd, own = await self.crowd(), self._identity
        asked = CrowdClosingRequest(manifest=crowd.request.manifest, job=self.id, analyst=own.name)
        answer = await self._line.tell(f"{self._path}/{self.id}", "closing", own.signed(asked))
        if answer.is_refusal:
            raise JobRefused(answer.reason)
        closing = await self.closing()
        if closing is None:
            raise JobFailed("the trainer took the request to close the job, and it is still open")
        return closing.body

    async def verify(self) -> CrowdClosing | None:
        """Follow every instance's log from the opening to the closing; None while it is open.

        What data holders kept of draws and receipts they check themselves.

        Raises:
            ProtocolError: a log does not hold; the message says of which instance, and where.
        """
        crowd, signed = await self.crowd(), await self.closing()
        if signed is None:
            return None
        closing = signed.body
        for instance in range(len(closing.heads)):
            await self._asked(partial(self._trainer.follow_log, crowd, closing, instance))
        return closing

    async def _asked(self, request: Callable[[], Awaitable[T]], tries: int = TRIES) -> T:
        try:
            return await self._line.retry(request, tries)
        except CrowdRefused as refusal:
            raise JobFailed(str(refusal)) from None
