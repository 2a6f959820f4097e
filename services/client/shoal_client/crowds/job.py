"""A crowd job for scripts and notebooks: watch it, take its model, verify how it ended.

crowd = analyst.open_crowd(task, contributions=100_000, contributions_per_client=1, ...)
crowd.snapshot().coefficients     # at any time
model = crowd.wait()              # when it is closed, by what the trainer signed
"""

from collections.abc import Iterator

from shoal_client.async_analyst import AsyncAnalyst
from shoal_client.conversation import Connect, converse
from shoal_client.crowds.states import CrowdProgress, CrowdState
from shoal_client.job_failures import JobInterrupted
from shoal_protocol.draw_and_discard.documents import CrowdClosing, CrowdJobRequest
from shoal_protocol.draw_and_discard.evidence import CrowdEvidence
from shoal_protocol.draw_and_discard.model import CrowdModel


class CrowdJob:
    """A crowd job at the trainer, by its id.

    Every method raises `Unavailable` if the trainer did not answer, several times, and `JobFailed`
    if it does not know the job.
    """

    def __init__(self, job: str, connect: Connect) -> None:
        """Ask by the connections that `connect` makes."""
        self.id = job
        self._connect = connect

    def __repr__(self) -> str:
        return f"CrowdJob({self.id!r})"

    def state(self) -> CrowdState:
        """Return what the trainer says of the job now; nothing of it is signed."""
        return converse(self._connect, lambda core: core.crowds.state(self.id))

    def request(self) -> CrowdJobRequest:
        """Return what was asked for, as its analyst signed it.

        Raises:
            ProtocolError: what the trainer shows is no analyst's request, or another job's.
        """

        async def request(core: AsyncAnalyst) -> CrowdJobRequest:
            return (await core.crowds.crowd(self.id)).request

        return converse(self._connect, request)

    def snapshot(self) -> CrowdModel:
        """Return the model as it is now, by the trainer's word.

        Raises:
            ProtocolError: it is no model of the job's task.
        """

        async def snapshot(core: AsyncAnalyst) -> CrowdModel:
            return await core.crowds.snapshot(await core.crowds.crowd(self.id))

        return converse(self._connect, snapshot)

    def wait(self, progress: CrowdProgress = lambda state: None) -> CrowdModel:
        """Wait until the job is closed, and return the model by its signed closing.

        `progress` is called with each new state.

        Raises:
            ProtocolError: the closing is not the trainer's, or does not follow from the opening.
            JobInterrupted: by the user; the job goes on.
        """
        try:
            return converse(self._connect, lambda core: core.crowds.wait(self.id, progress))
        except KeyboardInterrupt:
            raise JobInterrupted(self.id) from None

    def follow(self, *, every_seconds: float) -> Iterator[CrowdModel]:
        """Yield a snapshot every so many seconds, and in the end the model of the signed closing.

        Several of them show whether the spread over instances has settled:
        `*earlier, last = job.follow(every_seconds=60); last.stationarity(earlier, pulled=True)`.

        Raises:
            ProtocolError: as `wait`.
            JobInterrupted: by the user; the job goes on.
        """

        async def later(core: AsyncAnalyst) -> tuple[CrowdModel, bool]:
            crowd = await core.crowds.crowd(self.id)
            return await core.crowds.later(crowd, seconds=every_seconds)

        is_last = False
        while not is_last:
            try:
                model, is_last = converse(self._connect, later)
            except KeyboardInterrupt:
                raise JobInterrupted(self.id) from None
            yield model

    def result(self) -> CrowdModel | None:
        """Return the model that the job ended with, or None while it is open.

        Raises:
            ProtocolError: as `wait`.
        """

        async def result(core: AsyncAnalyst) -> CrowdModel | None:
            crowd = await core.crowds.crowd(self.id)
            closing = await core.crowds.closing(crowd)
            if closing is None:
                return None
            return CrowdModel.closed(crowd.request.task, closing.body)

        return converse(self._connect, result)

    def close(self) -> CrowdClosing:
        """Have the job closed now, for good; return its closing, which says so.

        Only the analyst who opened a job can. What was contributed stays in the model; draws that
        were not answered by now are refused. A job that is closed stays as it is.

        Raises:
            JobRefused: it is another analyst's.
            ProtocolError: the closing is not the trainer's, or does not follow from the opening.
        """

        async def close(core: AsyncAnalyst) -> CrowdClosing:
            return (await core.crowds.close(await core.crowds.crowd(self.id))).body

        return converse(self._connect, close)

    def evidence(self) -> CrowdEvidence:
        """Return what the trainer shows us of the job: its `fingerprints` are for comparing.

        With other parties' evidence, `shoal_protocol.draw_and_discard.evidence.differences` finds
        whom the trainer showed another crowd.

        Raises:
            ProtocolError: as `wait`.
        """

        async def evidence(core: AsyncAnalyst) -> CrowdEvidence:
            return await core.crowds.evidence(await core.crowds.crowd(self.id))

        return converse(self._connect, evidence)

    def verify(self) -> CrowdClosing | None:
        """Follow every instance's log from the opening to the closing; None while it is open.

        What data holders kept of draws and receipts they check themselves.

        Raises:
            ProtocolError: a log does not hold; the message says of which instance, and where.
        """

        async def verify(core: AsyncAnalyst) -> CrowdClosing | None:
            signed = await core.crowds.verify(await core.crowds.crowd(self.id))
            return None if signed is None else signed.body

        return converse(self._connect, verify)
