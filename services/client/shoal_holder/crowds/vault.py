"""The vault's part in crowd jobs: judges them, contributes, and checks how they ended.

Loaded where the owner's policy allows crowd jobs, or allowed them once.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from pydantic import Field

from shoal_holder import machine, restoring
from shoal_holder.admission import JobKind, check_columns, check_request, check_same_key
from shoal_holder.approvals import Approvals
from shoal_holder.charge_comparison import ChargeComparison
from shoal_holder.crowds import memory
from shoal_holder.crowds.allowance import crowds_cap, so_far
from shoal_holder.crowds.closings import Closings
from shoal_holder.crowds.contributor import MOST_TOGETHER, Contributor
from shoal_holder.crowds.crowd import Crowd, judged
from shoal_holder.crowds.status import NO_CROWDS, CrowdAccounts, CrowdStatus
from shoal_holder.messages import Decided, Outcome, Parts, TwoParts
from shoal_holder.policy import Policy
from shoal_holder.site import Part
from shoal_kit.outcome import ACKNOWLEDGED, OVER
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
from shoal_protocol.wire.documents import Model, Signed, decode, sign_again
from shoal_protocol.wire.encoding import Count, Digest, Timestamp
from shoal_protocol.wire.errors import (
    MalformedDocument,
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
CONTRIBUTED: Final = "contributed"
NO_ALLOWANCE: Final = (
    "no allowance left: of those enrolled when it opened, no client has enough epsilon left "
    "under your policy (maximum_local_epsilon, maximum_epsilon)"
)


class OpenCrowd(Model):
    """An open crowd job; no contribution is due before `next_moment`."""

    job: Digest
    manifest: Digest
    closes_at: Timestamp
    next_moment: Timestamp | None


class CrowdAgenda(Model):
    """Crowd jobs to go on with, and those that ended here with their closing yet to be judged."""

    jobs: tuple[OpenCrowd, ...]
    known: tuple[Digest, ...]  # that were ever taken, open or not, or wait for the owners
    unvalidated: tuple[Digest, ...]


class Nonces(Model):
    """The nonces for the next draws, to be sent at most `portion` at a time."""

    nonces: tuple[Digest, ...]
    portion: Count


@dataclass(eq=False)
class CrowdVault(Part):
    """Answers questions about crowd jobs."""

    _charges: ChargeComparison
    _approvals: Approvals
    _contributors: dict[str, Contributor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._own = (self._site, self._state, self._report, self._faults)
        self._closings = Closings(*self._own, self._on_file)

    def verbs(self) -> list[Callable[..., Any]]:
        """Return what the vault may be asked about crowd jobs."""
        return [
            *(
                self.query,
                self.agenda,
                self.offer,
                self.end,
                self.turn,
                self.contribute,
                self.pending,
            ),
            *(self.settle, self._closings.show, self._closings.judge, self._closings.show_log),
            *(self.statuses, self.accounts),
        ]

    def query(self) -> Parts:
        """Return the signed query for the list of crowd jobs; none if not enrolled."""
        query = self._site.query()
        return () if query is None else (query,)

    def statuses(self) -> tuple[CrowdStatus, ...]:
        """Return the crowd jobs that were taken."""
        return memory.statuses(self._state)

    def accounts(self) -> CrowdAccounts:
        """Return what crowd jobs have cost, and what the owner still allows them."""
        return so_far(self._state, self._site)

    def agenda(self) -> CrowdAgenda:
        """Return the crowd jobs to go on with, and end those that are done."""
        for job in memory.jobs(self._state, memory.OPEN):
            self._take_up(job)
            self._end_if_done(job)
        return CrowdAgenda(
            jobs=tuple(self._open(each) for each in self._contributors.values()),
            known=(*memory.jobs(self._state), *self._approvals.waiting()),
            unvalidated=tuple(memory.jobs(self._state, memory.UNVERIFIED)),
        )

    def _open(self, contributor: Contributor) -> OpenCrowd:
        request = contributor.crowd.request
        moment = self._site.clock() if contributor.ready else contributor.schedule.next_moment
        return OpenCrowd(
            job=contributor.crowd.job,
            manifest=request.manifest,
            closes_at=request.closes_at,
            next_moment=moment,
        )

    def offer(self, job: Digest, parts: TwoParts) -> Decided:
        """Take a crowd job, by its request and its opening as they were signed, or say why not.

        Raises:
            ProtocolError: a document is not what it should be.
        """
        if job in memory.jobs(self._state):
            return Decided(taken=True)
        request = decode(parts[0], CrowdJobRequest)
        opening = decode(parts[1], CrowdOpening)
        try:
            if not self._is_allowed(request, opening, job):
                return Decided(taken=False)
        except RefusedJob as refusal:
            return Decided(taken=False, reason=str(refusal))
        memory.add(self._state, job, request.encode(), opening.encode())
        self._report("crowd job taken", job=job)
        return Decided(taken=True)

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
            contributor = Contributor(*self._own, crowd)
        except UnknownManifest:  # the owner pinned a later version since
            self._report("crowd job not in the manifest", job=job)
        except ProtocolError as error:
            self.end(job, f"refused: {error}")
        else:
            self._contributors[job] = contributor

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
        return Crowd(request, opening, self._site.book.get(request.manifest))

    def _contributor(self, job: str) -> Contributor:
        if job not in self._contributors:
            raise UnknownJob("nothing is contributed to such a job")
        return self._contributors[job]

    def turn(self, job: Digest) -> Nonces:
        """Choose clients whose moment has come, and return once their noise is drawn.

        Raises:
            UnknownJob: nothing is contributed to such a job.
            NotReady, LedgerBroken: as `ChargeComparison.check`.
        """
        self._charges.check()
        contributor = self._contributor(job)
        if self._site.clock() < contributor.crowd.request.closes_at:
            contributor.prepare()
        nonces = tuple(each.nonce for each in contributor.ready)
        if not nonces:
            self._end_if_done(job)
        return Nonces(nonces=nonces, portion=contributor.portion)

    def contribute(
        self, job: Digest, parts: Annotated[tuple[bytes, ...], Field(min_length=1, max_length=256)]
    ) -> Count:
        """Answer the trainer's draws for the first nonces that it was asked by, as it signed them.

        Return how many were answered: charged, and stored.

        Raises:
            UnknownJob: nothing is contributed to such a job.
            ProtocolError: a draw is not the trainer's, or not of this job.
        """
        self._charges.check()
        contributor = self._contributor(job)
        try:
            if self._site.clock() >= contributor.crowd.request.closes_at:
                return 0
            return contributor.contribute(parts)
        except RefusedDraw as refusal:
            # signed by the trainer, but no draw of this job: there is no other of its nonce
            self.end(job, f"refused: {refusal}")
            raise

    def pending(self, job: Digest) -> Parts:
        """Return the unanswered submissions of a crowd job, signed by the key in force."""
        pending = memory.pending(self._state, job, count=MOST_TOGETHER)
        key = self._site.key  # which may be newer than their signatures
        return tuple(sign_again(document, Submission, key) for _, document in pending)

    def settle(self, job: Digest, outcomes: dict[Digest, Outcome], parts: Parts = ()) -> None:
        """Note outcomes of submissions, by digest; `parts` are receipts, empty where none came.

        Raises:
            MalformedDocument: the receipts are more or fewer than the outcomes.
        """
        if len(parts) != len(outcomes):
            raise MalformedDocument("there must be a receipt, or nothing, for each submission")
        told = dict(zip(outcomes, parts, strict=True))
        crowd, settled, counts = self._on_file(job), [], Counter[str]()
        for contribution, document in memory.pending(self._state, job, count=MOST_TOGETHER):
            submission = decode(document, Submission)
            if (digest := submission.digest) in told:
                said = judged(crowd, submission, outcomes[digest], told[digest])
                settled.append((contribution, *said))
                counts[said[0]] += 1
        memory.settle(self._state, settled)
        taken = counts[ACKNOWLEDGED]
        self._report("contributions settled", job=job, taken=taken, not_taken=len(settled) - taken)
        if counts[CrowdClosed.code]:
            self.end(job, CrowdClosed.code)

    def _end_if_done(self, job: str) -> None:
        """End a job whose time is over, or to which no client here can contribute any more."""
        contributor = self._contributors.get(job)
        if contributor is None or memory.pending(self._state, job, count=1):
            return  # in the second case the trainer is still asked about submissions
        if self._site.clock() >= contributor.crowd.request.closes_at:
            self.end(job, OVER)
        elif not contributor.ready and contributor.schedule.next_moment is None:
            made = self._state.file.one("SELECT 1 FROM contributions WHERE job = ?", job)
            self.end(job, CONTRIBUTED if made else NO_ALLOWANCE)

    def end(self, job: Digest, reason: Annotated[str, Field(max_length=1000)]) -> None:
        """End a crowd job here. Believed unsigned: this costs nobody privacy."""
        memory.end(self._state, job, reason)
        self._report("crowd job ended", job=job, reason=reason)
        contributor = self._contributors.pop(job, None)
        if contributor is not None and reason != CONTRIBUTED:
            if missing := sum(contributor.left().values()):
                self._report("contributions not made", job=job, contributions=missing)
