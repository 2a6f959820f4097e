"""Judges the rounds that the trainer announces, and makes the answers to them.

Which slots are answered for, and when, depends neither on records nor on noise. An answer is on
disk, and charged, before its first byte is handed over.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final, Literal

import numpy as np
from pyroaring import BitMap

from shoal_holder import machine, release_timing
from shoal_holder.admission import check_round, model_refusal
from shoal_holder.charge_comparison import ChargeComparison
from shoal_holder.contribution import (
    MOST_ENTRIES,
    box_keys,
    draw_noise,
    encoded_together,
    passes_for,
    seal_contribution,
)
from shoal_holder.faults import without_failing
from shoal_holder.letters import Draft, Settled
from shoal_holder.records import MOST_ROWS, chosen_together
from shoal_holder.site import Part
from shoal_holder.state import DELIVERED, StoredJob
from shoal_kit.manifest_book import Handover
from shoal_kit.outcome import ACKNOWLEDGED, OVER, PENDING, read_json
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.privacy.accounting import NOTHING
from shoal_protocol.queries import Query, Tables
from shoal_protocol.queries.columns import factors_in
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import SIGNATURE_BYTES, receipt_query, sign_envelope
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.encoding import Int64Vector
from shoal_protocol.wire.errors import (
    MalformedDocument,
    RefusedSpec,
    UnknownJob,
    UnknownRound,
)


class Answers(Part):
    """Makes the answers of one data holder."""

    def make(
        self, round_id: str, spec: RoundSpec, *, holder: int, asked: BitMap, used: BitMap
    ) -> bool:
        """Make, charge and store the answer for the slots in `asked`; tell whether it may be sent.

        The records in `used` count. The other slots contribute zeros and their noise: nothing of
        them is used, and nothing is charged to them.

        All work that depends on records or noise is done before a moment that follows from public
        numbers; the method waits until then, lest the courier learn how long the work took. The
        work after that moment is the same for all answers. A slot whose records cannot be worked
        out contributes zeros, too, is charged, and stands in the owner's list of faults.
        """
        site = self._site
        with site.released_after(allowed_seconds(spec, len(asked))):
            values = self.encoded(round_id, spec.query, list(asked), used)
            [noise] = draw_noise(spec, len(asked), site.noise)
        if site.clock() >= spec.deadline:
            return False
        envelopes = seal_contribution(
            spec,
            box_keys(site.book.get(spec.manifest)),
            holder,
            site.key,
            values,
            noise,
            epoch=machine.read(self._state.file).epoch,
            random_bytes=site.random_bytes,
        )
        members = spec.sharing.members(holder=holder, nodes=len(spec.compute_nodes))
        self._state.record_answer(
            round_id,
            spec.cost,
            site.clock(),
            used=used,
            unused=asked - used,
            envelopes=dict(zip(members, envelopes, strict=True)),
        )
        return True

    def encoded(
        self, round_id: str, query: Query, slots: Sequence[int], used: BitMap
    ) -> Int64Vector:
        """Return what slots contribute before noise, shape (dimension,)."""
        positions, most = self._site.positions(), query.records_per_client

        def work(portion: Sequence[int]) -> Int64Vector:
            here = [positions[slot] if slot in used else None for slot in portion]
            gaps = isinstance(query, Tables)
            together = chosen_together(
                self._site.records, here, query.column_names, most=most, with_gaps=gaps
            )
            return encoded_together(query, *together)

        def failed(slot: int, error: BaseException) -> None:
            self._faults.write(f"the records in slot {slot} count for none in {round_id}", error)

        size, total = slots_at_once(query), np.zeros(query.dimension, np.int64)
        for start in range(0, len(slots), size):
            for found in without_failing(slots[start : start + size], work, failed):
                total += found
        return total


def slots_at_once(query: Query) -> int:
    """Return of how many slots records are chosen at once, so that arrays keep `MOST_ENTRIES`."""
    values = query.records_per_client * len(query.column_names)
    return max(1, MOST_ENTRIES // max(MOST_ROWS, values))


def allowed_seconds(spec: RoundSpec, slots: int) -> float:
    """Return how long working out the answer for so many slots may take."""
    blocks = [(coordinates, part.of(slots)) for coordinates, part in spec.noise_blocks()]
    return release_timing.sampling_seconds(blocks) + encoding_allowed(spec.query, slots)


def encoding_allowed(query: Query, slots: int, *, failing: int = 1) -> float:
    """Return how long choosing and encoding so many slots' records may take, whatever these are.

    It allows for `failing` slots whose records fail: the slots that were worked on together with
    such a slot are worked on again, in halves.
    """
    together = min(slots, slots_at_once(query))
    passes = passes_for(query, together)
    return release_timing.encoding_seconds(
        columns=len(query.column_names),
        factors=factors_in(query.columns),
        coordinates=query.entries if isinstance(query, Tables) else query.dimension,
        records=query.records_per_client,
        slots=slots + failing * 2 * together,
        passes=math.ceil(slots / together) * passes
        + failing * 2 * (passes + together.bit_length()),
    )


WHEN: Final = (0.5, 0.85)
"""When nodes are asked what they hold, as parts of the time from opening to deadline."""
MISSING_REQUEST: Final = "missing-request"  # what a node answers to a spec whose job it lacks
SPREAD: Final = 0.1  # and up to so much later: not all data holders ask at once
MISSED: Final = "missed"
FAILED: Final = "failed here: faults.log says why"
NOT_ASKED: Final = "not asked"
BEFORE_RESTORE: Final = "announced before the state here was restored"
CAPPED: Final = "refused: the owner's cap leaves no slot here enough for another round"


@dataclass
class _Open:
    """A round that has not ended here, decoded once.

    `prepared` is true when no answer is left to make; `outcome` is the round's end once it is sent.
    """

    spec: RoundSpec
    prepared: bool = False
    outcome: str = DELIVERED
    asked: dict[int, tuple[datetime, int]] = field(default_factory=dict)
    """By node: when, and after how many interruptions, it was asked what it holds."""
    behind: dict[int, Literal["spec", "request"]] = field(default_factory=dict)
    """What nodes lack that do not know a round which they were sent an envelope of."""


@dataclass(eq=False)
class Rounds(Part):
    """Takes the rounds of the jobs that were joined from their specs to the outbox."""

    _charges: ChargeComparison
    _open: dict[str, _Open] = field(default_factory=dict)
    _interruptions: Counter[str] = field(default_factory=Counter)
    """How often nodes did not answer; after each, they may have lost what they had."""

    def __post_init__(self) -> None:
        self._later = SPREAD * int.from_bytes(self._site.random_bytes(4), "little") / 2.0**32
        self._answers = Answers(self._site, self._state, self._report, self._faults)
        self._handover = Handover(self._site.book)

    def offer(self, settled: Settled) -> None:
        """Take the next round of a job; it is put on file, too, if it is not answered.

        Raises:
            UnknownJob: clients here have no part in the job.
            RefusedSpec: it is no round that follows those on file; nothing comes of it.
            ProtocolError: the spec is not the trainer's word, or of no manifest that is known.
        """
        signed = decode(settled.body, RoundSpec)
        spec = signed.body
        stored = next((each for each in self._state.open_jobs() if each.job == spec.job), None)
        if stored is None:
            raise UnknownJob("this data holder takes no part in such a job")
        self._site.book.get(spec.manifest)
        ended = self._validate(signed, stored)
        self._state.add_round(signed.digest, spec.job, spec.number, settled.body, ended)
        if ended not in (None, NOT_ASKED, MISSED, BEFORE_RESTORE):
            self._state.end_job(spec.job, ended)
        self._report("round taken", round=signed.digest, number=spec.number, reason=ended)

    def _validate(self, signed: Signed[RoundSpec], stored: StoredJob) -> str | None:
        """Return why a round is not answered, None if it is."""
        spec, now = signed.body, self._site.clock()
        ours = self._of_ours(spec)
        try:
            check_round(
                signed,
                request=decode(stored.request, JobRequest).body,
                number=stored.next_number,
                consortium=self._handover.version(spec.manifest, now),
                policy=self._site.policy,
                spent=self._state.spent_in_job(stored.job, ours),
                slots=max(1, len(ours)),
                now=now,
            )
        except RefusedSpec as refusal:
            if spec.number < stored.next_number:
                raise
            return MISSED if spec.deadline <= now else f"refused: {refusal}"
        restored_at = machine.read(self._state.file).restored_at
        if restored_at is not None and spec.opened_at < restored_at:
            return BEFORE_RESTORE
        return None if ours else NOT_ASKED

    def look(self) -> None:
        """Take up the rounds on file in which something may be left to do; end those over."""
        self._handover.version(self._site.book.current.digest, self._site.clock())
        stored = self._state.open_rounds()
        for round_id in self._open.keys() - stored:
            del self._open[round_id]  # its job ended, or the next round began
        for round_id, spec in stored.items():
            if round_id not in self._open:
                self._open[round_id] = _Open(decode(spec, RoundSpec).body)
            self.end_if_over(round_id)

    def unprepared(self) -> list[str]:
        """Return the rounds that an answer may be left to make in."""
        return [each for each, known in self._at_hand() if not known.prepared]

    def _at_hand(self) -> list[tuple[str, _Open]]:
        """Return the rounds but those of a version before the one that the owner pinned since."""
        versions = {each.digest for each in self._site.book.versions}
        return [each for each in self._open.items() if each[1].spec.manifest in versions]

    # Every attempt sends the same bytes, but for the signature, which is made by the key in force.
    # A node that lost its disk, or was restored from a backup, lacks what it acknowledged: as long
    # as the round takes shares, it is sent again.

    def letters(self) -> Iterator[Draft]:
        """Yield the envelopes that no node answered, and what tells whether nodes have theirs."""
        now = self._site.clock()
        for round_id, known in self._at_hand():
            spec, path = known.spec, f"/v1/rounds/{round_id}/shares"
            for node, outcome in self._state.envelopes(round_id).items():
                name, place = spec.compute_nodes[node], f"{round_id}/{node}"
                if lacks := known.behind.get(node):
                    to = {"spec": "/v1/rounds", "request": "/v1/jobs"}[lacks]
                    yield Draft(f"{lacks}/{place}", name, to, partial(self._known, round_id, lacks))
                    continue
                share = partial(self._share, round_id, node, outcome)
                if outcome == PENDING:
                    yield Draft(f"envelope/{place}", name, path, share, is_json=False)
                elif self._is_to_be_asked(known, node, now):
                    yield Draft(f"receipt/{place}", name, f"{path}/stored", share, is_json=False)

    def _share(self, round_id: str, node: int, outcome: str) -> bytes:
        """Return an envelope that is to be sent, or what asks whether the node still has it."""
        envelope, holder = self._state.envelope(round_id, node, outcome), self._site.holder
        if envelope is None or holder is None:
            raise UnknownRound
        if outcome == PENDING:
            return sign_envelope(envelope[1][:-SIGNATURE_BYTES], self._site.key)
        return receipt_query(holder, envelope[0])

    def _known(self, round_id: str, what: Literal["spec", "request"]) -> bytes:
        """Return a round's signed spec, or its job's request: the trainer sent it long ago."""
        spec, request = self._state.file.one(
            "SELECT spec, request FROM rounds JOIN jobs USING (job) WHERE round = ?", round_id
        )
        return bytes(spec if what == "spec" else request)

    def _is_to_be_asked(self, known: _Open, node: int, now: datetime) -> bool:
        """Tell whether to ask a node whether it still has the envelope that it acknowledged.

        It is asked twice in a round, and whenever it was out of reach.
        """
        spec = known.spec
        asked, before = known.asked.get(node, (spec.opened_at, 0))
        window = spec.deadline - spec.opened_at
        times = (spec.opened_at + window * (part + self._later) for part in WHEN)
        is_new = self._interruptions[spec.compute_nodes[node]] != before
        return now < spec.deadline and (is_new or any(asked < time <= now for time in times))

    def unreached(self, settled: Settled) -> None:
        """Note that a node did not answer."""
        if known := self._of(settled):
            self._interruptions[known.spec.compute_nodes[settled.number]] += 1

    def _of(self, settled: Settled) -> _Open | None:
        """Return the open round that a letter to one of its nodes is about, if it is one."""
        known = self._open.get(settled.about)
        is_one = known is not None and settled.number < len(known.spec.compute_nodes)
        return known if is_one else None

    def note(self, settled: Settled) -> None:
        """Note what became of an envelope."""
        self._report(
            "envelope settled", round=settled.about, node=settled.number, outcome=settled.outcome
        )
        self._state.settle("envelope", settled.about, settled.outcome, settled.number)
        self.end_if_over(settled.about)

    def hear_stored(self, settled: Settled) -> None:
        """Take a node's word on whether it has the envelope that it acknowledged.

        If not, the same bytes are sent again, which costs nobody privacy.

        Raises:
            MalformedDocument: it does not say it.
        """
        round_id, node, body = settled.about, settled.number, read_json(settled.body)
        stored = body.get("stored") if isinstance(body, dict) else None
        if not isinstance(stored, bool):
            raise MalformedDocument("the node does not say whether it has the envelope")
        if known := self._of(settled):
            name = known.spec.compute_nodes[node]
            known.asked[node] = (self._site.clock(), self._interruptions[name])
        if not stored:
            self._state.send_again(round_id, node)
            self._report("envelope lost", round=round_id, node=node)

    def hand_on(self, settled: Settled, what: Literal["spec", "request"] = "spec") -> None:
        """Hand a node the spec of a round that it does not know, or its job's request."""
        if known := self._of(settled):
            known.behind[settled.number] = what
            self.unreached(settled)  # it may lack what it had

    def handed_on(self, settled: Settled) -> None:
        """Note a node's answer to the spec of a round, or to its job's request."""
        if settled.kind == "spec" and settled.code == MISSING_REQUEST:
            self.hand_on(settled, "request")
        elif settled.kind == "request" and settled.outcome == ACKNOWLEDGED:
            self.hand_on(settled)
        elif known := self._of(settled):
            known.behind.pop(settled.number, None)
            self._report(
                "round handed on", round=settled.about, node=settled.number, reason=settled.outcome
            )

    def end_if_over(self, round_id: str) -> None:
        """End a round whose time is over, or in which nothing can come any more."""
        known = self._open.get(round_id)
        if known is None:
            return
        now, spec, ended = self._site.clock(), known.spec, None
        if now >= spec.give_up_at:
            ended = OVER
        elif now >= spec.deadline and known.prepared:  # until then a node may lose what it has
            ended = None if PENDING in self._state.envelopes(round_id).values() else known.outcome
        if ended is not None:
            self._state.end_round(round_id, ended)
            del self._open[round_id]

    def prepare(self, round_id: str) -> bool:
        """Make the answer to a round, at the moment when it may leave; tell whether there is one.

        Raises:
            NotReady, LedgerBroken: as `ChargeComparison.check`.
        """
        known = self._open[round_id]
        self._charges.check(nodes=known.spec.threshold)
        known.prepared = True
        try:
            is_made = self._answer(round_id, known)
        except BaseException:
            known.outcome = FAILED
            raise
        self.end_if_over(round_id)
        return is_made

    def _answer(self, round_id: str, known: _Open) -> bool:
        """Make, charge and store the answer to a round, unless there is a reason not to."""
        spec, site = known.spec, self._site
        asked, used = self._of_ours(spec), self._used(round_id, known)
        holder = site.holder
        if holder is None or not used:
            return False
        leaves = release_timing.release_time(
            began=0.0, ready=0.0, allowed_seconds=allowed_seconds(spec, len(asked))
        )
        if leaves >= (spec.deadline - site.clock()).total_seconds():  # nothing drawn or charged
            known.outcome = MISSED
            self._report("too late to answer", round=round_id, slots=len(asked))
            return False
        return self._answers.make(round_id, spec, holder=holder, asked=asked, used=used)

    def _used(self, round_id: str, known: _Open) -> BitMap:
        """Return the slots whose records the answer to a round may use; none if there is none.

        Which these are follows from the owner's policy and what was spent: a slot without budget
        is answered for all the same, by zeros and noise, so that nobody sees which it is.
        """
        spec = known.spec
        used = self._of_ours(spec) & self._state.slots_of_job(spec.job)
        if not used or self._state.is_answered(round_id):
            return BitMap()
        # since it joined the job, the owner may have come to other columns, rules or models
        if reason := self._refusal(spec):
            known.outcome = f"refused: {reason}"
            self._report("round refused", round=round_id, reason=reason)
            return BitMap()
        # the job is among the commitments already
        able = self._state.committed().affording(used, NOTHING, self._site.policy.cap)
        if not able:  # a cap was lowered
            known.outcome = CAPPED
            self._report("round refused", round=round_id, reason=CAPPED)
        return able

    def _refusal(self, spec: RoundSpec) -> str | None:
        """Return why a round that was taken is not answered any more, None if it is."""
        if not set(spec.query.column_names) <= set(self._site.records.columns):
            return "a column of the round is missing"
        stored = next(each for each in self._state.open_jobs() if each.job == spec.job)
        request, policy = decode(stored.request, JobRequest).body, self._site.policy
        return policy.refusal(request) or policy.query_refusal(spec.query) or model_refusal(request)

    def _of_ours(self, spec: RoundSpec) -> BitMap:
        """Return the slots here that a round asks."""
        return spec.clients() & BitMap(self._site.positions())
