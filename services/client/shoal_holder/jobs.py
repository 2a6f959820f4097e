"""Decides once about each job that the courier offers, signs its join, and ends what is over.

The end of a job is on file before it is announced. The job then reserves no budget, and no round of
it is answered, whatever the trainer or the courier says.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field
from pyroaring import BitMap

from shoal_holder.admission import IN_ROUNDS, check_request
from shoal_holder.approvals import Approvals
from shoal_holder.charge_comparison import ChargeComparison
from shoal_holder.messages import Decided, OnePart, Outcome
from shoal_holder.site import Part
from shoal_holder.state import LEFT, Joined
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.jobs.membership import JobWithdrawal, JobWithdrawn, Join, Leave, check_ending
from shoal_protocol.wire.documents import Role, Signed, decode, sign
from shoal_protocol.wire.encoding import Digest
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError, RefusedJob, WrongPhase

WITHDRAWN: Final = "withdrawn"
UNPROVEN: Final = "withdrawn, by the trainer's word alone"
TIME_OVER: Final = "its time is over"


@dataclass(eq=False)
class Jobs(Part):
    """The jobs that this data holder takes part in, from the offer to the end."""

    _charges: ChargeComparison
    _approvals: Approvals

    def offer(self, job: Digest, parts: OnePart) -> Decided:
        """Join a job, with the records of all slots that have budget left, unless it was joined.

        Raises:
            NotReady, LedgerBroken: as `ChargeComparison.check`.
            ProtocolError: the request is not what it should be.
        """
        if self._state.file.takes_part(job):
            return Decided(taken=True)
        try:
            return Decided(taken=self._join(decode(parts[0], JobRequest), job))
        except RefusedJob as refusal:
            return Decided(taken=False, reason=str(refusal))

    def _join(self, signed: Signed[JobRequest], job: str) -> bool:
        """Join a job; tell whether it was joined: its owners may have yet to approve it.

        Raises:
            RefusedJob: it is not joined; the detail says why.
        """
        site, request = self._site, signed.body
        check_request(
            signed,
            IN_ROUNDS,
            job=job,
            bound_to=site.book.get(request.manifest),
            current=site.book.current,
            policy=site.policy,
            columns=site.records.columns,
            now=site.clock(),
        )
        listed = site.book.current.manifest.compute_nodes
        self._charges.check(joining=True, nodes=request.sharing.needed(len(listed)))
        committed, holder = self._state.committed(), site.holder
        cost, slots = request.privacy.cost, BitMap(site.positions())
        # joining must not depend on records: who joins is public, and no budget pays for it
        able = committed.affording(slots, cost, site.policy.cap)
        if holder is None or not able:
            raise RefusedJob(
                f"no slot here can join: of {len(slots):,} that are enrolled none has budget left "
                f"for {request.privacy.cap}"
            )
        # the last thing: owners are not asked about what could not be joined
        if not self._approvals.are_given(signed, until=request.join_deadline):
            return False
        join = Join(manifest=request.manifest, job=job, holder=holder)
        document = sign(join, Role.HOLDER, site.key).encode()
        self._state.add_job(job, signed.encode(), cost=cost, slots=able, join=document)
        self._report("job joined", job=job, slots=len(able))
        return True

    def end_those_over(self) -> None:
        """End the jobs whose time is over."""
        now = self._site.clock()
        for each in self._state.open_jobs():
            if decode(each.request, JobRequest).body.ends_by <= now:
                self._end(each.job, TIME_OVER)

    def end_as_told(
        self,
        job: Digest,
        code: Outcome,
        parts: Annotated[tuple[bytes, ...], Field(max_length=1)] = (),
    ) -> None:
        """End a job because the trainer said so, with its analyst's withdrawal if that is why.

        Believed unsigned: it costs nobody privacy to answer no more.

        Raises:
            UnknownJob: there is no such job here.
        """
        found = self._state.joined(job)
        if code != JobWithdrawn.code:
            self._end(job, code)
            return
        try:
            if not parts:
                raise MalformedDocument("there is no withdrawal")
            signed = decode(parts[0], JobWithdrawal)
            request = decode(found.request, JobRequest).body
            check_ending(signed, request, self._site.book.get(request.manifest))
        except ProtocolError as error:
            self._report("withdrawal not believed", job=job, reason=str(error))
            self._end(job, UNPROVEN)  # it could as well have no rounds
        else:
            self._end(job, WITHDRAWN)

    def leave(self, job: Digest) -> Joined:
        """Leave a job for good, and return it as it was; the leave is signed if a roster names us.

        What answered rounds cost stays charged, and what was sent may still be summed.

        Raises:
            UnknownJob: it was not joined here.
            WrongPhase: it has ended here otherwise.
        """
        found, holder, leave = self._state.joined(job), self._site.holder, None
        if found.ended not in (None, LEFT):
            raise WrongPhase(f"the job has ended here already ({found.ended}), and holds no budget")
        if holder is not None:
            manifest = decode(found.request, JobRequest).body.manifest
            body = Leave(manifest=manifest, job=job, holder=holder)
            leave = sign(body, Role.HOLDER, self._site.key).encode()
        self._state.end_job(job, LEFT, leave=leave)
        self._report("job ended", job=job, reason=LEFT)
        return found

    def _end(self, job: str, reason: str) -> None:
        self._state.end_job(job, reason)
        self._report("job ended", job=job, reason=reason)
