"""The aggregator's transactions, for `StorageThread.run`; each leaves a round in one of its phases.

A round's row is locked first, so that of two decisions only one is made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from sqlalchemy import Connection, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite

from shoal_aggregator import schema
from shoal_protocol.attestations import Abandonment, PartialSum, Result
from shoal_protocol.documents import Signed
from shoal_protocol.errors import UnknownRound
from shoal_protocol.phases import AGGREGATION, AggregationEvent, Phase, after
from shoal_protocol.rounds import RoundSpec

OPEN: Final = (Phase.ANNOUNCED, Phase.COLLECTING)


class Outcome(StrEnum):
    """What became of a document that was offered."""

    STORED = "stored"
    ENDED = "ended"  # stored, and the round ended with it
    KNOWN = "known"  # the same document is on file
    CONFLICTING = "conflicting"  # another one of this party is; the first such is evidence
    OTHER_COHORT = "other_cohort"  # than the first partial sum's; the first such is evidence
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class Stored:
    """A signed document's digest and wire form."""

    digest: str
    document: bytes


@dataclass(frozen=True)
class RoundRecord:
    """Where a round stands: its signed spec, its phase and counts."""

    spec: bytes
    phase: Phase
    partial_sums: int
    evidence: int


def answers(db: Connection) -> None:
    """Find out whether the database answers."""
    db.execute(select(1))


def add_round(db: Connection, signed: Signed[RoundSpec]) -> bool:
    """Store an announced round; False if it is known."""
    return _insert_new(
        db,
        schema.rounds,
        id=signed.digest,
        spec=signed.encode(),
        phase=Phase.ANNOUNCED.value,
        nodes=len(signed.body.compute_nodes),
        give_up_at=_milliseconds(signed.body.give_up_at),
    )


def knows_round(db: Connection, round_id: str) -> bool:
    """Tell whether the round was announced."""
    columns = schema.rounds.c
    return db.execute(select(columns.id).where(columns.id == round_id)).first() is not None


def find_round(db: Connection, round_id: str) -> RoundRecord:
    """Return a round.

    Raises:
        UnknownRound
    """
    columns = schema.rounds.c
    row = db.execute(
        select(columns.spec, columns.phase).where(columns.id == round_id)
    ).one_or_none()
    if row is None:
        raise UnknownRound
    return RoundRecord(
        spec=row.spec,
        phase=Phase(row.phase),
        partial_sums=_count(db, schema.partial_sums, round_id),
        evidence=_count(db, schema.evidence, round_id),
    )


def offer_partial_sum(db: Connection, signed: Signed[PartialSum]) -> Outcome:
    """Store a partial sum that was checked, unless something on file contradicts it.

    Raises:
        UnknownRound
    """
    body, table = signed.body, schema.partial_sums
    phase = _lock(db, body.round)
    known = select(table.c.node, table.c.digest, table.c.cohort, table.c.cohort_size)
    rows = db.execute(known.where(table.c.round == body.round)).all()
    own = {row.node: row.digest for row in rows}.get(body.node)
    if own is not None and own != signed.digest:
        return _keep_as_evidence(db, signed, Outcome.CONFLICTING)
    if phase is Phase.ABANDONED:  # also if the sum is on file: its node must learn of the end
        return Outcome.ABANDONED
    if own is not None:
        return Outcome.KNOWN
    if {(row.cohort, row.cohort_size) for row in rows} - {(body.cohort, body.cohort_size)}:
        return _keep_as_evidence(db, signed, Outcome.OTHER_COHORT)
    _move(db, body.round, phase, AggregationEvent.PARTIAL_SUM_STORED)
    db.execute(
        table.insert().values(
            round=body.round,
            node=body.node,
            digest=signed.digest,
            cohort=body.cohort,
            cohort_size=body.cohort_size,
            document=signed.encode(),
        )
    )
    return Outcome.STORED


def offer_abandonment(
    db: Connection, signed: Signed[Abandonment], decision: Signed[Abandonment]
) -> Outcome:
    """Store a Compute node's abandonment and, if the round is open, with it our `decision`.

    A node whose partial sum is on file can abandon no more: that conflicts.

    Raises:
        UnknownRound
    """
    body, sums = signed.body, schema.partial_sums
    phase = _lock(db, body.round)
    stored = find_abandonment(db, body.round, body.party)
    if stored is not None and stored.digest == signed.digest:
        return Outcome.KNOWN
    summed = select(sums.c.node).where((sums.c.round == body.round) & (sums.c.node == body.party))
    if stored is not None or db.execute(summed).first() is not None:
        return _keep_as_evidence(db, signed, Outcome.CONFLICTING)
    _insert_abandonment(db, signed)
    if phase is Phase.ABANDONED:
        return Outcome.STORED
    _move(db, body.round, phase, AggregationEvent.GIVEN_UP)
    _insert_abandonment(db, decision)
    return Outcome.ENDED


def complete_rounds(db: Connection) -> Sequence[str]:
    """Return the open rounds that have all their partial sums."""
    return _open_rounds(db, complete=True)


def overdue_rounds(db: Connection, now: datetime) -> Sequence[str]:
    """Return the open rounds that are past `give_up_at` and lack partial sums."""
    return _open_rounds(db, complete=False, give_up_by=now)


def publish(db: Connection, result: Signed[Result]) -> bool:
    """Store the result and end the round with it; False if it has ended already."""
    phase = _lock(db, result.body.round)
    if phase not in OPEN:
        return False
    _move(db, result.body.round, phase, AggregationEvent.ALL_PARTIAL_SUMS_STORED)
    db.execute(
        schema.results.insert().values(
            round=result.body.round, digest=result.digest, document=result.encode()
        )
    )
    return True


def abandon(db: Connection, decision: Signed[Abandonment], *, complete: bool) -> bool:
    """End a round without a release; False if it has ended.

    False also if it lacks partial sums where `complete`, or has them all where not.
    """
    round_id = decision.body.round
    phase = _lock(db, round_id)
    nodes = db.execute(select(schema.rounds.c.nodes).where(schema.rounds.c.id == round_id))
    has_all = _count(db, schema.partial_sums, round_id) == nodes.scalar_one()
    if phase not in OPEN or has_all is not complete:
        return False
    _move(db, round_id, phase, AggregationEvent.GIVEN_UP)
    _insert_abandonment(db, decision)
    return True


def find_partial_sums(db: Connection, round_id: str) -> Sequence[Stored]:
    """Return the round's partial sums, ordered by node."""
    columns = schema.partial_sums.c
    query = select(columns.digest, columns.document).where(columns.round == round_id)
    return [Stored(*row) for row in db.execute(query.order_by(columns.node))]


def find_result(db: Connection, round_id: str) -> Stored | None:
    """Return the round's result, if it is published."""
    columns = schema.results.c
    query = select(columns.digest, columns.document).where(columns.round == round_id)
    row = db.execute(query).one_or_none()
    return None if row is None else Stored(*row)


def find_abandonment(db: Connection, round_id: str, party: str) -> Stored | None:
    """Return `party`'s abandonment of the round, if there is one."""
    columns = schema.abandonments.c
    here = (columns.round == round_id) & (columns.party == party)
    row = db.execute(select(columns.digest, columns.document).where(here)).one_or_none()
    return None if row is None else Stored(*row)


def find_decision(db: Connection, round_id: str, aggregator: str) -> Stored | None:
    """Return the aggregator's own abandonment of the round, if that is how it ended.

    Raises:
        UnknownRound
    """
    if not knows_round(db, round_id):
        raise UnknownRound
    return find_abandonment(db, round_id, aggregator)


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _insert_new(db: Connection, table: Table, **values: object) -> bool:
    insert = postgresql.insert if db.dialect.name == "postgresql" else sqlite.insert
    statement = insert(table).values(**values).on_conflict_do_nothing()
    # a row comes back if it is new; the row count of an insertion is not always known
    return db.execute(statement.returning(*table.primary_key)).first() is not None


def _lock(db: Connection, round_id: str) -> Phase:
    """Return the phase, and let nobody else change the round until the commit."""
    columns = schema.rounds.c
    found = db.execute(select(columns.phase).where(columns.id == round_id).with_for_update())
    phase = found.scalar_one_or_none()
    if phase is None:
        raise UnknownRound
    return Phase(phase)


def _move(db: Connection, round_id: str, phase: Phase, event: AggregationEvent) -> None:
    following = after(AGGREGATION, phase, event)
    here = (schema.rounds.c.id == round_id) & (schema.rounds.c.phase == phase.value)
    db.execute(schema.rounds.update().where(here).values(phase=following.value))


def _count(db: Connection, table: Table, round_id: str) -> int:
    counted = select(func.count()).select_from(table).where(table.c.round == round_id)
    return db.execute(counted).scalar_one()


def _keep_as_evidence(
    db: Connection, signed: Signed[PartialSum] | Signed[Abandonment], outcome: Outcome
) -> Outcome:
    _insert_new(
        db,
        schema.evidence,
        round=signed.body.round,
        party=signed.signer,
        kind=signed.body.kind,
        digest=signed.digest,
        document=signed.encode(),
    )
    return outcome


def _insert_abandonment(db: Connection, signed: Signed[Abandonment]) -> None:
    insertion = schema.abandonments.insert().values(
        round=signed.body.round,
        party=signed.body.party,
        digest=signed.digest,
        document=signed.encode(),
    )
    db.execute(insertion)


def _open_rounds(
    db: Connection, *, complete: bool, give_up_by: datetime | None = None
) -> Sequence[str]:
    columns, sums = schema.rounds.c, schema.partial_sums
    stored = (
        select(func.count()).select_from(sums).where(sums.c.round == columns.id).scalar_subquery()
    )
    query = select(columns.id).where(columns.phase.in_([phase.value for phase in OPEN]))
    query = query.where(stored == columns.nodes if complete else stored < columns.nodes)
    if give_up_by is not None:
        query = query.where(columns.give_up_at <= _milliseconds(give_up_by))
    return db.execute(query.order_by(columns.give_up_at)).scalars().all()
