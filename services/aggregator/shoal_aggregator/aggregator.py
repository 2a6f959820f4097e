"""Takes partial sums and abandonments from Compute nodes and decides each round once.

The decision is a result or an abandonment, and is final. All state is in the store. Transactions
that store a document and decide its round lock the round's row first, so that of two decisions
only one is made.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, Final

import structlog
from prometheus_client import Counter
from sqlalchemy import Connection, func, select

from shoal_aggregator import store
from shoal_aggregator.schema import rounds
from shoal_aggregator.store import (
    OPEN,
    Standing,
    Word,
    is_hopeless,
    keep,
    lacking,
    lock,
    milliseconds,
    move,
    over,
    words,
)
from shoal_kit.web.logs import describe_exception
from shoal_protocol.journal import UNPLACED, Link
from shoal_protocol.rounds.attestations import (
    LONGEST_DETAIL,
    Abandonment,
    AbandonmentReason,
    PartialSum,
    PartialSumReference,
    Result,
)
from shoal_protocol.rounds.outcomes import IMPOSSIBLE, check_partial_sum, is_possible
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.shares import to_ring
from shoal_protocol.sharing.summation import Combined
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import LedgerBroken, ProtocolError, WrongSigner
from shoal_protocol.wire.phases import Phase
from shoal_protocol.wire.service_errors import (
    ConflictingDocument,
    RoundAbandoned,
    StorageUnavailable,
    WrongCohort,
    WrongRound,
)
from shoal_protocol.wire.vectors import decode_uint64, encode_uint64
from shoal_service.job_standing import ask_standing
from shoal_service.keepers import Keepers
from shoal_service.service import Resources
from shoal_service.signed_documents import read_signed
from shoal_service.storage.journal import Journal

log = structlog.get_logger()


class Outcome(StrEnum):
    """The outcome of an offered document."""

    STORED = "stored"
    DUE = "due"  # stored, and the round may end with it
    KNOWN = "known"  # the same document is on file
    LATE = "late"  # stored, and the round is published: to be compared with the other sums


def offer(
    db: Connection, signed: Signed[PartialSum] | Signed[Abandonment]
) -> Outcome | ProtocolError:
    """Store a Compute node's checked word on a round, or return why it is refused.

    A node has one word: a partial sum, or an abandonment.

    Sums over several cohorts may be on file as long as each cohort could still have a threshold
    of them: a node that lies first must not keep the others out.

    Raises:
        UnknownRound
    """
    body, is_sum = signed.body, isinstance(signed.body, PartialSum)
    phase, nodes, needed = lock(db, body.round)
    known = words(db, body.round)
    own = next((each for each in known if each.node == signed.signer), None)
    is_published = phase is Phase.PUBLISHED
    if own is not None and own.digest != signed.digest:
        return _keep_as_evidence(db, signed, ConflictingDocument())
    if is_sum and phase is Phase.ABANDONED:  # also if it is on file: its node must learn of the end
        return RoundAbandoned()
    if own is not None:  # a late sum that is sent again may not have been compared
        return Outcome.LATE if is_published and own.standing is Standing.LATE else Outcome.KNOWN
    standing = Standing.LATE if is_published else Standing.OPEN
    if not is_sum:
        standing = Standing.GAVE_UP
    else:
        cohorts = [each.over for each in known if each.standing is not Standing.GAVE_UP]
        if len(cohorts) - cohorts.count(over(body)) > nodes - needed:
            other = "another node's partial sum on file is over another cohort"
            return _keep_as_evidence(db, signed, WrongCohort(other))
    keep(db, signed, standing)
    if standing is Standing.LATE:
        return Outcome.LATE
    if standing is Standing.OPEN:
        move(db, body.round, Phase.COLLECTING)
    known.append(Word(signed.signer, standing, signed.digest, over(body)))
    is_due = lacking(known, needed) <= 0 or is_hopeless(known, nodes - needed)
    return Outcome.DUE if is_due else Outcome.STORED


def _keep_as_evidence(
    db: Connection, signed: Signed[PartialSum] | Signed[Abandonment], refusal: ProtocolError
) -> ProtocolError:
    log.warning(
        "contradicts what is on file",
        round=signed.body.round,
        party=signed.signer,
        kind=signed.body.kind,
        problem=refusal.code,
    )
    keep(db, signed, Standing.EVIDENCE)
    return refusal


CONTRADICTORY: Final = (
    "the Compute nodes' partial sums contradict each other, and it cannot be told which one is "
    "wrong. Let the nodes' operators compare software and storage; then submit the job again"
)


@dataclass(frozen=True)
class Summed:
    """A round's result, whose place in the journal is left open, and whose sums contradict it."""

    result: Result
    wrong: tuple[str, ...]


def add_up(spec: RoundSpec, sums: Sequence[PartialSum]) -> Summed | str:
    """Return the round's result, or why there is no total that may be released.

    The result is the total that the partial sums give, without blinding.

    `sums` are one of each Compute node that has sent its own. Those over the cohort that has the
    most of them count: only one can have a threshold of them, which is more than half of the nodes.
    There is no total if they contradict each other, or no clients' answers add up to that.

    Raises:
        ValueError: `sums` are not of enough Compute nodes.
    """
    cohorts = [each.over for each in sums]
    largest = max(cohorts, key=cohorts.count)
    by_node = {each.node: each for each in sums if each.over == largest}
    combined = _combined(spec, list(by_node.values()))
    if combined is None:
        return CONTRADICTORY
    total = summation.decode(spec.sharing, combined.total)
    if not is_possible(spec, total, cohort_size=largest[1]):
        return IMPOSSIBLE
    wrong = tuple(spec.compute_nodes[index] for index in sorted(combined.wrong))
    result = Result(
        manifest=spec.manifest,
        entry=UNPLACED,
        round=spec.digest,
        cohort=largest[0],
        cohort_size=largest[1],
        values=encode_uint64(to_ring(total)),
        partial_sums=tuple(
            PartialSumReference(node=node, digest=by_node[node].digest)
            for node in spec.compute_nodes
            if node in by_node and node not in wrong
        ),
    )
    return Summed(result, wrong)


def blamed(
    spec: RoundSpec, used: Sequence[PartialSum], others: Sequence[PartialSum], late: PartialSum
) -> tuple[str, ...]:
    """Return whose partial sum is wrong if `late` contradicts those `used` for a result.

    It may be one that the result is made of, if that rests on too few to be checked; then only the
    `others` over the same cohort may tell, and "unknown" is who it is otherwise.
    """
    combined = _combined(spec, [*used, late])
    if combined is not None and not combined.wrong:
        return ()
    same = [each for each in others if each.over == late.over]
    for each in (combined, _combined(spec, [*used, *same, late])):
        if each is not None and each.wrong:
            return tuple(spec.compute_nodes[index] for index in sorted(each.wrong))
    return ("unknown",)


def _combined(spec: RoundSpec, sums: Sequence[PartialSum]) -> Combined | None:
    values = {each.node: decode_uint64(each.values) for each in sums}
    nodes = spec.compute_nodes
    by_index = {index: values[node] for index, node in enumerate(nodes) if node in values}
    return summation.combine(spec.sharing, by_index, nodes=len(nodes))


def _decided(db: Connection, *, since: datetime) -> Sequence[str]:
    """Return the newest rounds of jobs that have ended, and whose time was up after `since`."""
    columns = rounds.c
    last = func.max(columns.number).label("number")
    newest = select(columns.job, last).group_by(columns.job).subquery()
    query = (
        select(columns.id)
        .join(newest, (newest.c.job == columns.job) & (newest.c.number == columns.number))
        .where(
            columns.phase.not_in(OPEN),
            columns.give_up_at > milliseconds(since),
        )
    )
    return db.execute(query).scalars().all()


_READING_THREADS: Final = 2
PATIENCE_SECONDS: Final = 0.25  # how long a step waits for keepers that do not answer
_SPECS_IN_MEMORY: Final = 8  # each may be megabytes


class Aggregator:
    """One aggregator, under the name and key that the manifest lists for it."""

    def __init__(self, resources: Resources, journal: Journal, keepers: Keepers) -> None:
        """Go on from what the storage holds; what is decided is signed in the `journal`."""
        self._own, self._journal, self.keepers = resources, journal, keepers
        self._work = resources.work()
        self._fetched: set[str] = set()  # rounds whose outcome their trainer has, by its word
        self._reading = resources.worker("reading", threads=_READING_THREADS)
        registry = resources.registry
        self._ends = Counter(
            "shoal_aggregator_rounds_ended", "Rounds that ended", ["end"], registry=registry
        )
        self._wrong = Counter(
            "shoal_aggregator_wrong_partial_sums",
            "Partial sums that contradict the others of a published round",
            ["node"],
            registry=registry,
        )
        self.changes = resources.changes
        self._specs: dict[str, RoundSpec] = {}  # by round, the last that were read
        self._comparing = asyncio.Lock()  # one late sum's at a time are in memory: M sums of d each
        self._unusable: dict[str, int] = {}  # rounds without a total, by so many sums
        resources.wake.set()

    async def announce(self, encoded: bytes) -> tuple[str, bool]:
        """Take a signed round spec; return the round and whether it is new.

        Raises:
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature, WrongManifest, RefusedSpec
            ConflictingDocument: another round of its job has its number, or a higher one.
            LedgerBroken: others know of more than this journal has.
        """
        size = len(encoded)
        signed = await self._own.read(encoded, RoundSpec)
        await self.keepers.check()
        try:
            await self._reading.run_sized(size, self._own.check_announced, signed)
        except ProtocolError:
            if await self._own.storage.run(store.knows_round, signed.digest):
                return signed.digest, False
            raise
        is_new = await self._own.storage.run(store.add_round, signed)
        self._keep(signed.body)
        self._own.wake.set()
        return signed.digest, is_new

    async def take(self, round_id: str, encoded: bytes) -> bool:
        """Take a Compute node's signed word on a round; return whether it is new.

        It is a partial sum or an abandonment.

        Raises:
            UnknownRound, MalformedDocument, UnknownSigner, WrongSigner, BadSignature,
            WrongManifest, WrongRound, WrongCharge, WrongCohort, WrongShare,
            ConflictingDocument
            RoundAbandoned: nothing will be released; the node's sum may be erased.
        """
        spec = await self._spec(round_id)
        signed = await self._reading.run_sized(len(encoded), self._verified, encoded, spec)
        outcome = await self._own.storage.run(offer, signed)
        if isinstance(outcome, ProtocolError):
            raise outcome
        if outcome is Outcome.LATE:
            await self._compare_late(spec, signed.body)
        elif outcome is Outcome.DUE:
            self._own.wake.set()
        return outcome in {Outcome.STORED, Outcome.DUE}

    async def _compare_late(self, spec: RoundSpec, late: PartialSum) -> None:
        """Compare a partial sum that came after the result with those that the result has."""
        run = self._own.storage.run
        async with self._comparing:
            used, others = [
                await run(store.find_words, spec.digest, which) for which in (Standing.USED, None)
            ]
            wrong = await self._reading.run(
                lambda: blamed(
                    spec,
                    [decode(each, PartialSum).body for each in used],
                    [decode(each, PartialSum).body for each in others],
                    late,
                )
            )
        if wrong:
            await run(store.judge, spec.digest, Standing.WRONG, [late.node])
            self._tell_wrong(spec, wrong)

    def _tell_wrong(self, spec: RoundSpec, nodes: Sequence[str]) -> None:
        for node in nodes:
            self._wrong.labels(node).inc()
            log.error("a partial sum contradicts the others", round=spec.digest, party=node)

    async def is_busy(self) -> bool:
        """Tell whether a round is open, or a trainer may not have fetched what became of one.

        Nobody tells a retired aggregator that the trainer has what it needs, so it asks. A trainer
        that does not answer is waited for as long as it would wait for an aggregator.
        """
        own = self._own
        if await self.oldest_open() is not None:
            return True
        decided = await own.storage.run(_decided, since=own.clock() - own.patience)
        for round_id in [each for each in decided if each not in self._fetched]:
            spec = await self._spec(round_id)
            standing = await ask_standing(own, spec.job, manifest=spec.manifest)
            if standing is None or not standing.is_past(spec.number):
                return True
            self._fetched.add(round_id)
        return False

    async def step(self) -> None:
        """Decide on every round that is due: add up what is complete, then abandon the rest."""
        now, run = self._own.clock(), self._own.storage.run
        if self.keepers.is_due():
            self._work.begin("keepers", self.keepers.ask)
            await self._work.progress(asyncio.Event(), patience_seconds=PATIENCE_SECONDS)
        try:
            await self.keepers.check()
            complete, lost = await run(store.due_rounds, now)
            for round_id in complete:
                await self._apart(self._add_up, round_id)
            for round_id in lost:
                await self._apart(self._give_up, round_id)
        except StorageUnavailable:
            log.warning("storage unavailable: rounds are decided once it answers again")
        except LedgerBroken:
            log.warning("the aggregator was set back: it decides on no round")

    async def _apart(self, decide: Callable[[str], Awaitable[None]], round_id: str) -> None:
        """Decide on one round; a fault in it must not stop the others."""
        try:
            await decide(round_id)
        except StorageUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 -- logged; tried again at the next step
            log.error("a round cannot be decided", round=round_id, **describe_exception(error))

    async def _add_up(self, round_id: str) -> None:
        spec = await self._spec(round_id)
        is_over = self._own.clock() >= spec.give_up_at
        if round_id in self._unusable and not is_over:
            if await self._own.storage.run(store.count_sums, round_id) == self._unusable[round_id]:
                return
        self._unusable.pop(round_id, None)
        stored = await self._own.storage.run(store.find_words, round_id)
        summed = await self._reading.run_sized(
            sum(map(len, stored)),
            lambda: add_up(spec, [decode(each, PartialSum).body for each in stored]),
        )
        if isinstance(summed, str):
            if len(stored) < len(spec.compute_nodes) and not is_over:
                self._unusable[round_id] = len(stored)  # a further sum may tell which one is wrong
                return
            return await self._abandon(spec, "sum_failed", summed, stored=len(stored))
        used, wrong = [each.node for each in summed.result.partial_sums], summed.wrong

        def attest(entry: Link) -> Signed[Result]:
            return self._own.sign(summed.result.model_copy(update={"entry": entry}))

        if await self._journal.run(
            store.publish, round_id, attest, stored=len(stored), used=used, wrong=wrong
        ):
            self._ends.labels("published").inc()
            log.info("round published", round=round_id, partial_sums=len(used))
            self._tell_wrong(spec, wrong)
        else:
            self._own.wake.set()  # unless it has ended, more sums have come and count too
        self.changes.tell(round_id)

    async def _give_up(self, round_id: str) -> None:
        """Abandon a round that can have no total any more, or whose time is over."""
        spec, run = await self._spec(round_id), self._own.storage.run
        code, detail = "partial_sums_missing", "give_up_at has passed"
        found = await run(store.find_words, round_id, Standing.GAVE_UP)
        lost = [decode(each, Abandonment) for each in found]
        if len(lost) > len(spec.compute_nodes) - spec.threshold:
            code = "called_off_by_node"
            detail = "; ".join(f"{each.signer}: {each.body.reason}" for each in lost)
        await self._abandon(spec, code, detail[:LONGEST_DETAIL], stored=None)

    async def _abandon(
        self, spec: RoundSpec, code: str, detail: str, *, stored: int | None
    ) -> None:
        decision = partial(self._abandonment, spec, code, detail)
        if await self._journal.run(store.abandon, spec.digest, decision, stored=stored):
            self._ends.labels("abandoned").inc()
            log.info("round abandoned", round=spec.digest, reason=code)
        self.changes.tell(spec.digest)

    def _abandonment(
        self, spec: RoundSpec, code: str, detail: str, entry: Link
    ) -> Signed[Abandonment]:
        body = Abandonment(
            manifest=spec.manifest,
            entry=entry,
            round=spec.digest,
            party=self._own.name,
            reason=AbandonmentReason.model_validate({"code": code, "detail": detail}),
        )
        return self._own.sign(body)

    def _verified(self, encoded: bytes, spec: RoundSpec) -> Signed[Any]:
        signed: Signed[Any] = read_signed(self._own.book, encoded, PartialSum, Abandonment)
        self._own.book.get(spec.manifest).verify(signed)
        if signed.body.round != spec.digest:
            raise WrongRound
        if isinstance(signed.body, PartialSum):
            check_partial_sum(signed.body, spec)
        elif signed.signer not in spec.compute_nodes:
            raise WrongSigner("only Compute nodes call a round off here")
        return signed

    async def _spec(self, round_id: str) -> RoundSpec:
        if round_id not in self._specs:
            encoded = await self._own.storage.run(store.find_spec, round_id)
            self._keep((await asyncio.to_thread(decode, encoded, RoundSpec)).body)
        return self._specs[round_id]

    def _keep(self, spec: RoundSpec) -> None:
        self._specs[spec.digest] = spec
        if len(self._specs) > _SPECS_IN_MEMORY:
            self._specs.pop(next(iter(self._specs)))

    async def oldest_open(self) -> datetime | None:
        """Return when the oldest round was opened that is not over; None: there is none."""
        spec = await self._own.storage.run(store.oldest_open_round)
        return None if spec is None else decode(spec, RoundSpec).body.opened_at
