"""Decides about each job whose request comes, signs its join, and ends what is over.

A job that was joined is never joined again. A refusal is kept in memory, so a restart judges anew.
The end of a job is on file before it is announced. The job then reserves no budget, and no round of
it is answered, whatever the trainer or the courier says.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import ClassVar, Final

from pyroaring import BitMap

from shoal_holder.admission import IN_ROUNDS, check_request
from shoal_holder.approvals import Approvals
from shoal_holder.charge_comparison import ChargeComparison
from shoal_holder.letters import Draft, Settled, listed_jobs
from shoal_holder.messages import Octets
from shoal_holder.site import Part
from shoal_holder.state import LEFT
from shoal_holder.state import Letter as Pending
from shoal_kit.outcome import GONE
from shoal_protocol.jobs import membership
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.jobs.membership import (
    Membership,
)
from shoal_protocol.wire.documents import Role, Signed, decode, sign, sign_again
from shoal_protocol.wire.encoding import Digest
from shoal_protocol.wire.errors import (
    LedgerBroken,
    NotReady,
    ProtocolError,
    RefusedJob,
    UnknownJob,
    UnknownManifest,
    WrongPhase,
)

TIME_OVER: Final = "its time is over"


MOST_ENDED: Final = 100
"""How many refused jobs that the trainer lists no more are shown, with the reason."""
MOST_AT_ONCE: Final = 100
"""How many jobs are judged before the list is looked at again, however long that is."""
_PENDING: Final[tuple[Pending, ...]] = ("leave", "join")  # in this order


@dataclass(eq=False)
class ListedJobs(Part):
    """The jobs of one kind that the trainer lists, until each is taken part in or refused."""

    kind: ClassVar[str] = "job"

    _charges: ChargeComparison
    _approvals: Approvals
    refused: dict[str, str] = field(default_factory=dict)
    """Why nothing is done for jobs, in memory."""
    _requests: dict[str, bytes] = field(default_factory=dict)
    """The requests of jobs that it lists, or that are among those refused, as they were signed."""
    wanted: list[str] = field(default_factory=list)
    """Listed jobs that have yet to be judged."""

    def list_jobs(self, settled: Settled) -> None:
        """Take the trainer's list: those jobs are to be judged that were not.

        Raises:
            MalformedDocument: it is none.
        """
        listed = dict.fromkeys(listed_jobs(settled.body, settled.kind))  # "jobs" or "crowds"
        for job in [each for each in self.refused if each not in listed][:-MOST_ENDED]:
            del self.refused[job]
        kept = self.refused.keys() | listed.keys()
        self._requests = {job: each for job, each in self._requests.items() if job in kept}
        done = self.refused.keys() | set(self._approvals.waiting())
        new = (
            each for each in listed if each not in done and not self._state.file.takes_part(each)
        )
        self.wanted = list(islice(new, MOST_AT_ONCE))

    def unlist(self, settled: Settled) -> None:
        """Judge a job no more: its request is gone since it was listed, or it was judged."""
        self.wanted = [each for each in self.wanted if each != settled.about]

    def refuse(self, settled: Settled, reason: str | None = None) -> None:
        """Take no part in a job, for this reason or because its request is not shown."""
        job, reason = settled.about, reason or settled.code
        self.unlist(settled)
        self.refused[job] = reason
        self._report(f"{self.kind} refused", job=job, reason=reason)

    def offer(self, settled: Settled) -> None:
        """Take part in a job, by its document from the trainer, or refuse it for good.

        Raises:
            NotReady, LedgerBroken: nobody may decide yet.
            UnknownManifest: the manifest that it is bound to is not known here, and may come.
        """
        job = settled.about
        try:
            takes_part = self._take_part(job, settled.body)
        except (NotReady, LedgerBroken, UnknownManifest):
            raise
        except ProtocolError as error:
            return self.refuse(settled, str(error))
        self.unlist(settled)
        if not takes_part:
            self._report(f"{self.kind} waits for its owners' approval", job=job)

    def _take_part(self, job: str, document: bytes) -> bool:
        """Take part in a job; return whether that is so: its owners may have yet to approve it.

        Raises:
            RefusedJob, ProtocolError: it is refused; the detail says why.
        """
        raise NotImplementedError

    def _end(self, job: str, reason: str) -> None:
        self._state.end_job(job, reason)
        self._report(f"{self.kind} ended", job=job, reason=reason)


class Jobs(ListedJobs):
    """The jobs that this data holder takes part in, from the trainer's list to the end."""

    def judged(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return why jobs were not joined, and those that wait for the owners' approval.

        The first are all that the trainer lists, and the newest of others.
        """
        return self.refused, self._approvals.waiting()

    def request(self, job: Digest) -> Octets:
        """Return the signed request of a job that was joined or is listed.

        Raises:
            UnknownJob: there is no such job.
        """
        return self._requests.get(job) or self._state.joined(job).request

    def letters(self) -> Iterator[Draft]:
        """Yield the leaves and joins that nobody answered, and what asks the trainer for the rest.

        That is the list of jobs, the next rounds of those joined, and the requests of others.
        """
        trainer, key = self._site.book.current.manifest.trainer.name, self._site.key
        for what in _PENDING:
            for job, document in self._state.pending_letters(what).items():
                # by the key in force, which may be newer than it is
                signed = partial(sign_again, document, Membership, key)
                yield Draft(f"{what}/{job}", trainer, f"/v1/jobs/{job}/memberships", signed)
        if query := self._site.query():
            yield Draft("jobs", trainer, "/v1/jobs/joining", query)
        for each in self._state.open_jobs():
            number = each.next_number
            path = f"/v1/jobs/{each.job}/rounds/{number}"
            yield Draft(f"round/{each.job}/{number}", trainer, path)
        if self._charges.is_recent:
            for job in self.wanted:
                yield Draft(f"job/{job}", trainer, f"/v1/jobs/{job}/request")

    def note(self, settled: Settled) -> None:
        """Note what became of a join or leave."""
        what, job, outcome = settled.kind, settled.about, settled.outcome
        self._report(f"{what} settled", job=job, outcome=outcome)
        self._state.settle(what, job, outcome)

    def _take_part(self, job: str, document: bytes) -> bool:
        """Join a job, with the records of all slots that have budget left, unless it was joined.

        Raises:
            NotReady, LedgerBroken: as `ChargeComparison.check`.
        """
        signed = decode(document, JobRequest)
        if signed.digest != job:
            raise RefusedJob("the request is another job's")
        self._requests[job] = document
        return self._state.file.takes_part(job) or self._join(signed, job)

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
        join = self._signed(membership.JOINED, request, holder)
        self._state.add_job(job, signed.encode(), cost=cost, slots=able, join=join)
        self._report("job joined", job=job, slots=len(able))
        return True

    def end_those_over(self) -> None:
        """End the jobs whose time is over."""
        now = self._site.clock()
        for each in self._state.open_jobs():
            if decode(each.request, JobRequest).body.ends_by <= now:
                self._end(each.job, TIME_OVER)

    def end_as_told(self, settled: Settled) -> None:
        """End a job because the trainer said so.

        Believed unsigned: it costs nobody privacy to answer no more.

        Raises:
            UnknownJob: there is no such job here.
        """
        job, code = settled.about, settled.code
        self._state.joined(job)
        if settled.status != GONE and code != UnknownJob.code:
            self._report("no round", job=job, reason=code)
        else:
            self._end(job, code)

    def leave(self, job: Digest) -> None:
        """Leave a job for good; the leave is signed if a roster names us.

        What answered rounds cost stays charged, and what was sent may still be summed.

        Raises:
            UnknownJob: it was not joined here.
            WrongPhase: it has ended here otherwise.
        """
        found, holder, leave = self._state.joined(job), self._site.holder, None
        if found.ended not in (None, LEFT):
            raise WrongPhase(f"the job has ended here already ({found.ended}), and holds no budget")
        if holder is not None:
            leave = self._signed(membership.LEFT, decode(found.request, JobRequest).body, holder)
        self._state.end_job(job, LEFT, leave=leave)
        self._report("job ended", job=job, reason=LEFT)

    def _signed(self, state: membership.State, request: JobRequest, holder: int) -> bytes:
        body = Membership(manifest=request.manifest, job=request.digest, holder=holder, state=state)
        return sign(body, Role.HOLDER, self._site.key).encode()
