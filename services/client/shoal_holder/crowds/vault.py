"""The vault's part in crowd jobs: judges them, contributes, and checks how they ended.

Loaded where the owner's policy allows crowd jobs, or allowed them once.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from pydantic import TypeAdapter

from shoal_holder import machine, restoring
from shoal_holder.admission import check_columns
from shoal_holder.approvals import Approvals
from shoal_holder.charge_comparison import ChargeComparison
from shoal_holder.crowds import memory
from shoal_holder.crowds.admission import check_crowd, crowd_refusal
from shoal_holder.crowds.closings import Closings
from shoal_holder.crowds.contributor import MOST_TOGETHER, Contributor
from shoal_holder.crowds.crowd import Crowd, Sent, judged
from shoal_holder.crowds.messages import (
    AskCrowds,
    AskOfCrowds,
    Contributed,
    CrowdAgenda,
    CrowdDraws,
    CrowdPending,
    CrowdReceipts,
    CrowdTurn,
    EndCrowd,
    Nonces,
    OfferCrowd,
    OpenCrowd,
    ShowClosing,
    ShowLog,
    Submissions,
    ValidateClosing,
    WantedLog,
)
from shoal_holder.crowds.records_used import so_far
from shoal_holder.crowds.status import NO_CROWDS, CrowdAccounts, CrowdStatus
from shoal_holder.faults import Faults
from shoal_holder.messages import Answer, Decided, Done, Message, Told
from shoal_holder.reporting import Report
from shoal_holder.site import Site
from shoal_holder.state import State
from shoal_hosting.outcome import ACKNOWLEDGED, OVER
from shoal_protocol.crowds.draws import (
    CrowdClosed,
    CrowdJobRequest,
    CrowdOpening,
    RefusedDraw,
    Submission,
)
from shoal_protocol.wire.documents import decode, sign_again
from shoal_protocol.wire.errors import (
    MalformedDocument,
    ProtocolError,
    RefusedJob,
    UnknownJob,
    UnknownManifest,
)

CONTRIBUTED: Final = "contributed"
NO_ALLOWANCE: Final = (
    "no allowance left: of those enrolled when it opened, no client has enough epsilon left "
    "under your policy (maximum_local_epsilon, maximum_epsilon)"
)

TOLD: Final[dict[str, TypeAdapter[Any]]] = {
    "statuses": TypeAdapter(tuple[CrowdStatus, ...]),
    "spent": TypeAdapter(CrowdAccounts),
}
"""What each of the owner's questions is answered with."""


class CrowdVault:
    """Handles the vault's messages about crowd jobs."""

    def __init__(
        self,
        site: Site,
        state: State,
        charges: ChargeComparison,
        approvals: Approvals,
        report: Report,
        faults: Faults,
    ) -> None:
        """Begin without open crowd jobs."""
        self._site = site
        self._state = state
        self._charges = charges
        self._approvals = approvals
        self._report = report
        self._faults = faults
        self._contributors: dict[str, Contributor] = {}
        self._closings = Closings(site, state, report)

    def handlers(self) -> dict[type[Message], Callable[[Any], Answer]]:
        """Return the handler of each message about crowd jobs."""
        return {
            AskCrowds: self._agenda,
            OfferCrowd: self._offer,
            EndCrowd: self._told_to_end,
            CrowdTurn: self._turn,
            CrowdDraws: self._draws,
            CrowdPending: self._pending,
            CrowdReceipts: self._receipts,
            ShowClosing: self._show_closing,
            ValidateClosing: self._validate_closing,
            ShowLog: self._show_log,
            AskOfCrowds: self._told,
        }

    def _agenda(self, _: AskCrowds) -> CrowdAgenda:
        for job in memory.open_crowds(self._state):
            self._take_up(job)
            self._end_if_done(job)
        return CrowdAgenda(
            jobs=tuple(self._open(each) for each in self._contributors.values()),
            known=(*memory.known(self._state), *self._approvals.waiting()),
            unvalidated=tuple(memory.unverified(self._state)),
        )

    def _open(self, contributor: Contributor) -> OpenCrowd:
        request = contributor.crowd.request
        moment = self._site.clock() if contributor.ready else contributor.schedule.next_moment
        return OpenCrowd(
            job=contributor.crowd.job,
            manifest=request.manifest,
            closes_at=request.closes_at,
            next_moment=moment,
            waiting=bool(memory.pending(self._state, contributor.crowd.job, count=1)),
        )

    def _offer(self, asked: OfferCrowd) -> Decided:
        site = self._site
        if memory.is_known(self._state, asked.job):
            return Decided(taken=True)
        request = decode(asked.parts[0], CrowdJobRequest)
        opening = decode(asked.parts[1], CrowdOpening)
        try:
            if site.policy.maximum_local_epsilon is None:
                raise RefusedJob(NO_CROWDS)  # whatever it asks
            if machine.read(self._state.file).restored_at is not None:
                raise RefusedJob(restoring.NO_CROWDS)
            check_crowd(
                request,
                opening,
                job=asked.job,
                bound_to=site.book.get(request.body.manifest),
                current=site.book.current,
                policy=site.policy,
                columns=site.records.columns,
                now=site.clock(),
            )
            if not self._approvals.are_given(request, until=request.body.closes_at):
                return Decided(taken=False)
        except RefusedJob as refusal:
            return Decided(taken=False, reason=str(refusal))
        places = -(-request.body.contributions_per_client // request.body.contributions_per_record)
        machine.note_crowds(self._state.file, site.policy.maximum_local_epsilon * places)
        memory.add(self._state, asked.job, request.encode(), opening.encode())
        self._report("crowd job taken", job=asked.job)
        return Decided(taken=True)

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
            contributor = Contributor(self._site, self._state, crowd, self._report, self._faults)
        except UnknownManifest:  # the owner pinned a later version since
            self._report("crowd job not in the manifest", job=job)
        except ProtocolError as error:
            self._end(job, f"refused: {error}")
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
        if not memory.is_known(self._state, job):
            raise UnknownJob
        stored = memory.documents(self._state, job)
        request = decode(stored.request, CrowdJobRequest).body
        opening = decode(stored.opening, CrowdOpening).body
        return Crowd(request, opening, self._site.book.get(request.manifest))

    def _contributor(self, job: str) -> Contributor:
        if job not in self._contributors:
            raise UnknownJob("nothing is contributed to such a job")
        return self._contributors[job]

    def _turn(self, asked: CrowdTurn) -> Nonces:
        self._charges.check()
        contributor = self._contributor(asked.job)
        if self._site.clock() < contributor.crowd.request.closes_at:
            contributor.prepare()
        nonces = tuple(each.nonce for each in contributor.ready)
        if not nonces:
            self._end_if_done(asked.job)
        return Nonces(nonces=nonces, portion=contributor.portion)

    def _draws(self, asked: CrowdDraws) -> Contributed:
        self._charges.check()
        contributor = self._contributor(asked.job)
        try:
            if self._site.clock() >= contributor.crowd.request.closes_at:
                return Contributed(count=0)
            return Contributed(count=contributor.contribute(asked.parts))
        except MalformedDocument:
            raise  # unsigned: anyone in between may have sent it
        except RefusedDraw as refusal:
            # signed by the trainer, but no draw of this job: there is no other of its nonce
            self._end(asked.job, f"refused: {refusal}")
            raise

    def _pending(self, asked: CrowdPending) -> Submissions:
        pending = memory.pending(self._state, asked.job, count=MOST_TOGETHER)
        key = self._site.key  # which may be newer than their signatures
        return Submissions(
            parts=tuple(sign_again(document, Submission, key) for _, document in pending)
        )

    def _receipts(self, asked: CrowdReceipts) -> Done:
        if len(asked.parts) != len(asked.receipts):
            raise MalformedDocument("there must be a receipt, or nothing, for each submission")
        crowd, sent = self._on_file(asked.job), self._sent(asked.job)
        settled = []
        for each, told in zip(asked.receipts, asked.parts, strict=True):
            if each.submission in sent:
                contribution, submission = sent[each.submission]
                found = judged(crowd, submission, each.outcome, told)
                settled.append((contribution, found.outcome, found.receipt))
        memory.settle(self._state, settled)
        taken = sum(outcome == ACKNOWLEDGED for _, outcome, _ in settled)
        self._report(
            "contributions settled", job=asked.job, taken=taken, not_taken=len(settled) - taken
        )
        if any(outcome == CrowdClosed.code for _, outcome, _ in settled):
            self._end(asked.job, CrowdClosed.code)
        return Done()

    def _sent(self, job: str) -> dict[str, tuple[str, Sent]]:
        """Return unanswered contributions and submissions, by the submission's digest."""
        found = {}
        for contribution, document in memory.pending(self._state, job, count=MOST_TOGETHER):
            submission = decode(document, Submission)
            found[submission.digest] = (contribution, Sent.of(submission))
        return found

    def _told_to_end(self, asked: EndCrowd) -> Done:
        self._end(asked.job, asked.reason)
        self._closings.look_at_once(self._on_file(asked.job))
        return Done()

    def _show_closing(self, asked: ShowClosing) -> Done:
        self._closings.show(self._on_file(asked.job), asked.parts[0])
        return Done()

    def _validate_closing(self, asked: ValidateClosing) -> WantedLog:
        return _wanted(self._closings.judge(self._on_file(asked.job)))

    def _show_log(self, asked: ShowLog) -> WantedLog:
        return _wanted(self._closings.show_log(asked.job, asked.parts[0]))

    def _end_if_done(self, job: str) -> None:
        """End a job whose time is over, or to which no client here can contribute any more."""
        contributor = self._contributors.get(job)
        if contributor is None:
            return
        if memory.pending(self._state, job, count=1):
            return  # the trainer is still asked about submissions
        if self._site.clock() >= contributor.crowd.request.closes_at:
            self._end(job, OVER)
        elif not contributor.ready and contributor.schedule.next_moment is None:
            made = memory.has_contributed(self._state, job)
            self._end(job, CONTRIBUTED if made else NO_ALLOWANCE)

    def _end(self, job: str, reason: str) -> None:
        memory.end(self._state, job, reason)
        self._report("crowd job ended", job=job, reason=reason)
        contributor = self._contributors.pop(job, None)
        if contributor is not None and reason != CONTRIBUTED:
            if missing := sum(contributor.left().values()):
                self._report("contributions not made", job=job, contributions=missing)

    def _told(self, asked: AskOfCrowds) -> Told:
        found: Any
        if asked.question == "statuses":
            found = memory.statuses(self._state)
        else:
            found = so_far(self._state, self._site)
        return Told(parts=(TOLD[asked.question].dump_json(found),))


def _wanted(found: Sequence[int] | None) -> WantedLog:
    return (
        WantedLog(instance=None) if found is None else WantedLog(instance=found[0], after=found[1])
    )
