"""The vault's part in crowd jobs: judges them, contributes, and checks how they ended.

Loaded where the owner's policy allows crowd jobs, or allowed them once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import ClassVar, Final

from shoal_holder import machine, restoring, spending
from shoal_holder.admission import JobKind, check_columns, check_request, check_same_key
from shoal_holder.crowds import memory
from shoal_holder.crowds.allowance import crowds_cap
from shoal_holder.crowds.closings import Closings
from shoal_holder.crowds.contributor import Contributor
from shoal_holder.crowds.crowd import Crowd, acknowledged
from shoal_holder.crowds.status import NO_CROWDS, CrowdStatus
from shoal_holder.jobs import ListedJobs
from shoal_holder.letters import Draft, Effects, Settled, stays
from shoal_holder.policy import Policy
from shoal_kit.outcome import ACKNOWLEDGED
from shoal_protocol.crowds.draws import (
    CrowdClosed,
    CrowdJobRequest,
    CrowdOpening,
    RefusedDraw,
    Submission,
    check_crowd_job,
    check_opening,
    reach_refusal,
)
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.wire.documents import Signed, decode, sign_again
from shoal_protocol.wire.errors import (
    ProtocolError,
    RefusedJob,
    UnknownJob,
    UnknownManifest,
)


def crowd_refusal(policy: Policy, request: CrowdJobRequest) -> str | None:
    """Return why `policy` lets no client here into a crowd job, or None if some may be in it."""
    task = request.task
    if policy.maximum_local_epsilon is None:
        return NO_CROWDS
    if request.analyst not in policy.analysts:
        return "the analyst is not among those that this data holder allows"
    if task.family not in policy.crowd_families:
        return "this data holder does not allow the model: see `crowd_families` in its policy"
    if reason := policy.columns_refusal((*task.features, task.target)):
        return reason
    one = Cost.pure(task.contribution_epsilon)
    for what, cap in (("crowd jobs", crowds_cap(policy)), ("all jobs", policy.cap)):
        if not cap.allows(one):
            return (
                f"epsilon {task.contribution_epsilon:g} of one contribution exceeds what {what} "
                f"may cost one client here: {cap}"
            )
    return None


CROWD: Final = JobKind(
    check=check_crowd_job,
    too_far=lambda request, limits, now: reach_refusal(request, limits, now=now),
    refusal=crowd_refusal,
    columns=lambda request: request.task.column_names,
    until=lambda request: request.closes_at,
    time="the time to contribute",
)
LAST_ANSWERS: Final = timedelta(seconds=60)
"""How long the trainer is still asked about submissions once a job was found to be over."""
CONTRIBUTED: Final = "contributed"
NO_ALLOWANCE: Final = (
    "no allowance left: of those enrolled when it opened, no client has enough epsilon left "
    "under your policy (maximum_local_epsilon, maximum_epsilon)"
)


@dataclass(eq=False)
class CrowdJobs(ListedJobs):
    """The crowd jobs that this data holder contributes to, from the list to the verdict."""

    kind: ClassVar[str] = "crowd job"

    _contributors: dict[str, Contributor] = field(default_factory=dict)
    """Those of open jobs; the job that had its turn last is the last."""

    def __post_init__(self) -> None:
        self._own = (self._site, self._state, self._report, self._faults)
        self._closings = Closings(*self._own, self._on_file)

    def effects(self) -> dict[str, Effects]:
        """Return what answers to each kind of letter do, as `Vault` does."""
        note, closings = self.note, self._closings
        return {
            "crowds": (self.list_jobs, stays, stays, stays),
            "crowd": (self.hear_request, self.unlist, self.refuse, stays),
            "opening": (self.offer, self.unlist, self.refuse, stays),
            "draw": (self.hear_draw, self.close, self.close, stays),
            "contribution": (note, note, note, stays),
            "closing": (self.hear_closing, stays, stays, stays),
            "log": (closings.hear_log, stays, stays, stays),
        }

    def standing(self) -> tuple[dict[str, str], tuple[CrowdStatus, ...]]:
        """Return why crowd jobs are not contributed to, and those that were taken."""
        return self.refused, memory.statuses(self._state)

    def letters(self) -> Iterator[Draft]:
        """Yield unanswered submissions, and what asks for a list, listed jobs, draws and closings.

        Jobs that are done have ended before.
        """
        self._look()
        trainer, key = self._site.book.current.manifest.trainer.name, self._site.key
        now = self._site.clock()
        if query := self._site.query():
            yield Draft("crowds", trainer, "/v1/crowds/list", query)
        for job, contributor in self._contributors.items():
            path = f"/v1/crowds/{job}"
            pending = memory.pending(self._state, job)
            for number, document in pending.items():
                # by the key in force, which may be newer than it is
                signed = partial(sign_again, document, Submission, key)
                yield Draft(f"contribution/{job}/{number}", trainer, f"{path}/submissions", signed)
            for each in contributor.drawing if not pending and now < contributor.until else ():
                asks = partial(contributor.ask, each)
                yield Draft(f"draw/{job}/{each.number}", trainer, f"{path}/draws", asks)
        for job in self.wanted:
            kind, what = ("opening",) * 2 if job in self._requests else ("crowd", "request")
            yield Draft(f"{kind}/{job}", trainer, f"/v1/crowds/{job}/{what}")
        yield from self._closings.letters(trainer)

    def _look(self) -> None:
        """Take up the jobs on file, and end those that are done."""
        for job in memory.open_jobs(self._state):
            self._take_up(job)
        for job in [*self._contributors]:
            self._end_if_done(job)

    def turns(self) -> list[str]:
        """Return the jobs in which something is to be worked out, in turn."""
        return [job for job, contributor in self._contributors.items() if contributor.work()]

    def take_turn(self, job: str) -> bool:
        """Contribute to a job, until a moment that follows from public numbers.

        That is to answer the draws at hand, or to have clients ready for theirs. Tell whether there
        was anything to work out.

        Raises:
            NotReady, LedgerBroken: as `ChargeComparison.check`.
        """
        self._charges.check()
        contributor = self._contributors[job] = self._contributors.pop(job)
        work = contributor.work()
        return work is not None and work()

    def hear_request(self, settled: Settled) -> None:
        """Keep the request of a listed job, until its opening is here."""
        if settled.about in self.wanted:
            self._requests[settled.about] = settled.body

    def _take_part(self, job: str, document: bytes) -> bool:
        """Take a crowd job, by its request and its opening as they were signed."""
        request = decode(self._requests.get(job, b""), CrowdJobRequest)
        opening = decode(document, CrowdOpening)
        is_allowed = self._is_allowed(request, opening, job)
        if is_allowed:
            memory.add(self._state, job, request.encode(), opening.encode())
            self._report("crowd job taken", job=job)
        return is_allowed

    def _is_allowed(
        self, signed: Signed[CrowdJobRequest], opening: Signed[CrowdOpening], job: str
    ) -> bool:
        """Tell whether a crowd job is contributed to; False if its owners have yet to approve it.

        Raises:
            RefusedJob: the consortium or the owner forbids it, or the opening is not its own.
            ProtocolError: a document is bound to another manifest, or not signed by its author.
        """
        site, request = self._site, signed.body
        if site.policy.maximum_local_epsilon is None:
            raise RefusedJob(NO_CROWDS)  # whatever it asks
        if machine.read(self._state.file).restored_at is not None:
            raise RefusedJob(restoring.NO_CROWDS)
        bound_to, current = site.book.get(request.manifest), site.book.current
        check_request(
            signed,
            CROWD,
            job=job,
            bound_to=bound_to,
            current=current,
            policy=site.policy,
            columns=site.records.columns,
            now=site.clock(),
        )
        check_same_key(opening.signer, bound_to, current)
        bound_to.verify(opening)
        check_opening(opening.body, request)
        return self._approvals.are_given(signed, until=request.closes_at)

    def _take_up(self, job: str) -> None:
        """See that a job on file has a contributor; end it if it is contributed to no more."""
        if job in self._contributors:
            return
        try:
            crowd = self._on_file(job)
            # the owner may have changed the policy, or the records, since
            if reason := crowd_refusal(self._site.policy, crowd.request):
                raise RefusedJob(reason)
            check_columns(crowd.request.task.column_names, self._site.records.columns)
        except UnknownManifest:  # the owner pinned a later version since
            return
        except ProtocolError as error:
            self._end(job, f"refused: {error}")
            return
        contributor = self._contributors[job] = Contributor(*self._own, crowd)
        if crowd.closing is not None:
            contributor.close(CrowdClosed.code)

    def _on_file(self, job: str) -> Crowd:
        """Return a crowd job that was taken here, as it was checked then.

        Raises:
            UnknownJob: there is none.
            UnknownManifest: the manifest that it is bound to is not at hand.
        """
        if job in self._contributors:
            return self._contributors[job].crowd
        stored = memory.documents(self._state, job)
        if stored is None:
            raise UnknownJob
        request = decode(stored[0], CrowdJobRequest).body
        opening = decode(stored[1], CrowdOpening).body
        return Crowd(request, opening, self._site.book.get(request.manifest), stored[2])

    def _contributor(self, job: str) -> Contributor:
        if job not in self._contributors:
            raise UnknownJob("nothing is contributed to such a job")
        return self._contributors[job]

    def hear_draw(self, settled: Settled) -> None:
        """Take a draw, which is answered at this job's next turn.

        Raises:
            UnknownJob, UnknownRound: it was not asked for.
            ProtocolError: it is not the trainer's, or not of this job.
        """
        try:
            self._contributor(settled.about).hear(settled.number, settled.body)
        except RefusedDraw as refusal:
            # signed by the trainer, but no draw of this job: there is no other of its nonce
            self._end(settled.about, f"refused: {refusal}")
            raise

    def close(self, settled: Settled) -> None:
        """Draw for nobody from now on, because the trainer said so.

        Believed unsigned: this costs nobody privacy.
        """
        self._contributor(settled.about).close(settled.code)

    def note(self, settled: Settled) -> None:
        """Note what became of a submission, by the trainer's receipt or a refusal.

        Raises:
            UnknownJob: there is no such job, or it was answered.
            ProtocolError: the trainer did not sign the receipt.
        """
        job, outcome, receipt = settled.about, settled.outcome, None
        document = memory.pending(self._state, job).get(settled.number)
        if document is None:
            raise UnknownJob("no such submission waits for an answer")
        submission = decode(document, Submission)
        if outcome == ACKNOWLEDGED:
            receipt = settled.body
            outcome = acknowledged(self._on_file(job), submission.body, receipt)
        memory.settle(self._state, submission.digest, outcome, receipt)
        self._report("contribution settled", job=job, outcome=outcome)
        if outcome == CrowdClosed.code and job in self._contributors:
            self._contributors[job].close(outcome)

    def hear_closing(self, settled: Settled) -> None:
        """Keep a closing, as `Closings.hear`; it ends the job here, whatever it says."""
        self._closings.hear(settled)
        if settled.about in self._contributors:
            self._contributors[settled.about].close(CrowdClosed.code)

    def _end_if_done(self, job: str) -> None:
        """End a job whose time is over, or to which no client here can contribute any more.

        As long as submissions wait for answers it does not end, but for a trainer that gives none.
        """
        contributor, now = self._contributors[job], self._site.clock()
        is_waiting = bool(memory.pending(self._state, job))
        if now >= contributor.until:
            contributor.over_at = contributor.over_at or now
            if not is_waiting or now >= contributor.over_at + LAST_ANSWERS:
                self._end(job, contributor.reason)
        elif not (is_waiting or contributor.ready or contributor.schedule.next_moment):
            made = next(spending.charges(self._state.file, job), None)
            self._end(job, CONTRIBUTED if made else NO_ALLOWANCE)

    def _end(self, job: str, reason: str) -> None:
        super()._end(job, reason)
        contributor = self._contributors.pop(job, None)
        if contributor is not None and reason != CONTRIBUTED:
            if missing := sum(contributor.left().values()):
                self._report("contributions not made", job=job, contributions=missing)
