"""Judges the rounds that the courier offers, and says whose answers are made when.

Who answers, and when, depends neither on records nor on noise.
"""

from dataclasses import dataclass
from typing import Final

from shoal_holder import outbox
from shoal_holder.admission import check_round
from shoal_holder.answers import Answers, portion
from shoal_holder.charge_comparison import ChargeComparison
from shoal_holder.messages import OpenRound, Prepared
from shoal_holder.reporting import Report
from shoal_holder.site import Site
from shoal_holder.state import DELIVERED, State, StoredJob
from shoal_hosting.outcome import OVER
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import RefusedSpec, UnknownJob, UnknownRound

MISSED: Final = "missed"
NOT_ASKED: Final = "not asked"
CAPPED: Final = "refused: the owner's cap leaves no client here enough for another round"


@dataclass
class _Open:
    """A round that has not ended here, decoded once.

    `prepared` is true when no answer is left to make; `outcome` is the round's end once all are
    sent.
    """

    spec: RoundSpec
    prepared: bool = False
    outcome: str = DELIVERED


class Rounds:
    """Takes the rounds of the jobs that were joined from their specs to the outbox."""

    def __init__(self, site: Site, state: State, charges: ChargeComparison, report: Report) -> None:
        self._site = site
        self._state = state
        self._charges = charges
        self._report = report
        self._answers = Answers(site, state)
        self._open: dict[str, _Open] = {}

    def offer(self, encoded_spec: bytes) -> str | None:
        """Take the next round of a job, or return why it is not answered.

        Raises:
            UnknownJob: clients here have no part in the job.
            RefusedSpec: it is no round that follows those on file; nothing comes of it.
            ProtocolError: the spec is not the trainer's word, or of no manifest that is known.
        """
        signed = decode(encoded_spec, RoundSpec)
        spec = signed.body
        stored = next((each for each in self._state.open_jobs() if each.job == spec.job), None)
        if stored is None:
            raise UnknownJob("no client here takes part in such a job")
        self._site.book.get(spec.manifest)
        ended = self._validate(signed, stored)
        self._state.add_round(signed.digest, spec.job, spec.number, encoded_spec, ended)
        if ended not in (None, NOT_ASKED, MISSED):
            self._state.end_job(spec.job, ended)
        self._report("round taken", round=signed.digest, number=spec.number, reason=ended)
        return ended

    def _validate(self, signed: Signed[RoundSpec], stored: StoredJob) -> str | None:
        """Return why a round is not answered, None if it is."""
        spec, now = signed.body, self._site.clock()
        ours = self._of_ours(spec)
        try:
            check_round(
                signed,
                request=decode(stored.request, JobRequest).body,
                number=stored.next_number,
                consortium=self._site.book.current,
                policy=self._site.policy,
                spent=self._state.spent_in_job(stored.job, ours),
                now=now,
            )
        except RefusedSpec as refusal:
            if spec.number < stored.next_number:
                raise
            return MISSED if spec.deadline <= now else f"refused: {refusal}"
        return None if ours else NOT_ASKED

    def agenda(self) -> list[OpenRound]:
        """Return the rounds in which something may be left to do; those that are over end here."""
        stored = self._state.open_rounds()
        for round_id in self._open.keys() - {each.round_id for each in stored}:
            del self._open[round_id]  # its job ended, or the next round began
        for each in stored:
            if each.round_id not in self._open:
                spec = decode(each.spec, RoundSpec).body
                self._open[each.round_id] = _Open(spec)
            self.end_if_over(each.round_id)
        return [
            OpenRound(
                round_id=round_id,
                manifest=each.spec.manifest,
                opened_at=each.spec.opened_at,
                deadline=each.spec.deadline,
                unprepared=not each.prepared,
            )
            for round_id, each in self._open.items()
        ]

    def end_if_over(self, round_id: str) -> None:
        """End a round whose time is over, or in which nothing can come any more."""
        known = self._open.get(round_id)
        if known is None:
            return
        now, spec, ended = self._site.clock(), known.spec, None
        if now >= spec.give_up_at:
            ended = OVER
        elif now >= spec.deadline and known.prepared:  # until then a node may lose what it has
            ended = None if outbox.has_pending(self._state, round_id) else known.outcome
        if ended is not None:
            self._state.end_round(round_id, ended)
            del self._open[round_id]

    def prepare(self, round_id: str) -> Prepared:
        """Make one portion of a round's answers, and return at the moment when they may leave.

        Raises:
            UnknownRound: there is no such round, or it has ended here.
            NotReady, LedgerBroken: as `ChargeComparison.check`.
        """
        self._charges.check()
        known = self._open.get(round_id)
        if known is None or not self._state.is_open(round_id):
            raise UnknownRound
        spec = known.spec
        clients = self._who_answers(round_id, spec)
        left = (spec.deadline - self._site.clock()).total_seconds()
        size = portion(spec, len(clients), seconds=left) if clients else 0
        if clients and size == 0:  # no noise is drawn for them, and nothing charged
            known.outcome = MISSED
            self._report("too late to answer", round=round_id, clients=len(clients))
        known.prepared = size in (0, len(clients))
        made = self._answers.make(round_id, spec, clients[:size]) if size else 0
        self.end_if_over(round_id)
        return Prepared(clients=made, more=not known.prepared)

    def _who_answers(self, round_id: str, spec: RoundSpec) -> list[int]:
        clients = self._state.unanswered(round_id, self._of_ours(spec))
        if not clients:
            return []
        # since it joined the job, the owner may have come to other columns, rules or models
        if reason := self._refusal(spec):
            self._open[round_id].outcome = f"refused: {reason}"
            self._report("round refused", round=round_id, reason=reason, clients=len(clients))
            return []
        cap = self._site.policy.cap
        committed = self._state.committed()  # the job is in there already
        affording = [client for client in clients if cap.allows(committed[client])]
        if not affording:  # a cap was lowered
            self._open[round_id].outcome = CAPPED
            self._report("round refused", round=round_id, reason=CAPPED)
        return affording

    def _refusal(self, spec: RoundSpec) -> str | None:
        """Return why a round that was taken is not answered any more, None if it is."""
        if not set(spec.query.column_names) <= set(self._site.records.columns):
            return "a column of the round is missing"
        stored = next(each for each in self._state.open_jobs() if each.job == spec.job)
        request, policy = decode(stored.request, JobRequest).body, self._site.policy
        if reason := policy.refusal(request) or policy.query_refusal(spec.query):
            return reason
        for _, query in request.terms.installed_models():  # the owner's policy names them
            from shoal_hosting.installed_models import refusal

            if reason := refusal(query):
                return reason
        return None

    def _of_ours(self, spec: RoundSpec) -> list[int]:
        """Return the clients here whom a round asks."""
        population = spec.clients()
        return [client for client in self._site.positions() if client in population]
