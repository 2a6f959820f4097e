"""Ends jobs here that are left, withdrawn or over, and tells the trainer of leaves; it joins none.

That a job has ended is on file before anybody is told so. It then holds no budget, and no round of
it is answered, whatever the trainer says.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final, ParamSpec, TypeVar

from shoal_client import exits
from shoal_client.background import Background
from shoal_client.directory import Directory
from shoal_client.enrolment import MOST_JOINS, hand_in
from shoal_client.exits import LEFT, Joined
from shoal_client.peer import ACKNOWLEDGED, OK
from shoal_client.reporting import Report
from shoal_client.site import Site
from shoal_client.state import State, StoredJob
from shoal_hosting.exchange import Unavailable
from shoal_protocol.documents import decode
from shoal_protocol.errors import MalformedDocument, ProtocolError
from shoal_protocol.jobs import JobRequest
from shoal_protocol.membership import JobWithdrawal, JobWithdrawn, check_withdrawal

WITHDRAWN: Final = "withdrawn"
UNPROVEN: Final = "withdrawn, by the trainer's word alone"
TIME_OVER: Final = "its time is over"

P = ParamSpec("P")
T = TypeVar("T")


class Leaving:
    """The ways out of the jobs that were joined."""

    def __init__(
        self, site: Site, background: Background, directory: Directory, report: Report, bulk: bool
    ) -> None:
        self._site = site
        self._background = background
        self._directory = directory
        self._report = report
        self._size = MOST_JOINS if bulk else 1
        self._ends_by: dict[str, datetime] = {}  # of open jobs

    async def step(self) -> None:
        """End the jobs whose time is over, and send the leaves that nobody has answered."""
        now, jobs = self._site.clock(), await self._background.disk(State.open_jobs)
        self._ends_by = {
            each.job: self._ends_by.get(each.job) or decode(each.request, JobRequest).body.ends_by
            for each in jobs
        }
        for job, ends_by in self._ends_by.items():
            if ends_by <= now:
                await self._end(job, TIME_OVER)
        for job, leaves in (await self._file(exits.pending)).items():
            for start in range(0, len(leaves), self._size):
                part = leaves[start : start + self._size]
                try:
                    found = await hand_in(
                        self._directory.trainer,
                        f"/v1/jobs/{job}/leaves",
                        [document for _, document in part],
                    )
                except (Unavailable, MalformedDocument) as error:
                    self._report("leaves not sent", job=job, reason=str(error))
                    break
                settled = [
                    (client, outcome)
                    for (client, _), outcome in zip(part, found, strict=True)
                    if outcome is not None
                ]
                await self._file(exits.settle, job, settled)
                taken = sum(outcome == ACKNOWLEDGED for _, outcome in settled)
                self._report("leaves settled", job=job, taken=taken, refused=len(settled) - taken)

    async def leave(self, job: str) -> Joined:
        """Leave a job with all clients here, for good; return it as it was.

        What answered rounds cost stays charged, and what was sent may still be summed.

        Raises:
            UnknownJob: no client here joined it.
            WrongPhase: it has ended here otherwise.
        """
        found = await self._file(exits.joined, job)
        keys = {client: self._site.keys[here] for client, here in self._site.positions().items()}
        leaves = await self._background.work(exits.sign_leaves, found, keys)
        await self._background.disk(State.end_job, job, LEFT, leaves=leaves)
        self._report("job ended", job=job, reason=LEFT)
        return found

    async def end_as_told(self, job: StoredJob, code: str) -> None:
        """End a job because the trainer said so, with its analyst's withdrawal if that is why.

        Raises:
            Unavailable: it did not show the withdrawal.
        """
        if code != JobWithdrawn.code:
            await self._end(job.job, code)
            return
        answer = await self._directory.trainer.get(f"/v1/jobs/{job.job}/withdrawal")
        try:
            if answer.status != OK:
                raise MalformedDocument("there is no withdrawal")
            signed = decode(answer.body, JobWithdrawal)
            request = decode(job.request, JobRequest).body
            check_withdrawal(signed, request, self._site.book.get(request.manifest))
        except ProtocolError as error:
            self._report("withdrawal not believed", job=job.job, reason=str(error))
            await self._end(job.job, UNPROVEN)  # it could as well have no rounds
        else:
            await self._end(job.job, WITHDRAWN, answer.body)

    async def _end(self, job: str, reason: str, withdrawal: bytes | None = None) -> None:
        await self._background.disk(State.end_job, job, reason, withdrawal=withdrawal)
        self._report("job ended", job=job, reason=reason)

    async def _file(self, operation: Callable[..., T], *arguments: object) -> T:
        return await self._background.disk(lambda state: operation(state.file, *arguments))
