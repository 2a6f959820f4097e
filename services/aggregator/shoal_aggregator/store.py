"""The aggregator's transactions, for `StorageThread.run`; each leaves a round in one of its phases.

A round's row is locked first, so that of two decisions only one is made.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple

from sqlalchemy import BindParameter, ColumnElement, Connection, Table, bindparam, func, select

from shoal_aggregator import schema
from shoal_protocol.rounds.attestations import Abandonment, PartialSum, Result
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import UnknownRound
from shoal_protocol.wire.phases import AGGREGATION, AggregationEvent, Phase, after
from shoal_protocol.wire.service_errors import ConflictingDocument
from shoal_service.storage.database import insert_new

EPOCH: Final = datetime.fromtimestamp(0, UTC)  # with committees no further sum is waited for
OPEN: Final = (Phase.ANNOUNCED, Phase.COLLECTING)

# built once: building them takes longer than SQLite takes to carry them out
_ROUND_ID: Final[BindParameter[str]] = bindparam("round_id")
_IS_ROUND: Final = schema.rounds.c.id == _ROUND_ID
_LOCKED: Final = (
    select(schema.rounds.c.phase, schema.rounds.c.nodes, schema.rounds.c.threshold)
    .where(_IS_ROUND)
    .with_for_update()
)
_KNOWN: Final = select(schema.rounds.c.id).where(_IS_ROUND)
_NEW_SUM: Final = schema.partial_sums.insert()
_MOVED: Final = (
    schema.rounds.update()
    .where(_IS_ROUND, schema.rounds.c.phase == bindparam("before"))
    .values(phase=bindparam("following"))
)
_RESULT: Final = select(schema.results.c.document).where(schema.results.c.round == _ROUND_ID)
_ABANDONMENT: Final = select(schema.abandonments.c.document).where(
    schema.abandonments.c.round == _ROUND_ID, schema.abandonments.c.party == bindparam("party")
)
NEWEST_FIRST: Final = (
    schema.rounds.c.give_up_at.desc(),
    schema.rounds.c.number.desc(),
    schema.rounds.c.id,
)


class Standing(StrEnum):
    """A partial sum's relation to the round's result."""

    OPEN = "open"  # there is none yet
    USED = "used"
    LATE = "late"  # it agrees with the result, and came after it
    WRONG = "wrong"  # it contradicts those that the result is made of


class Locked(NamedTuple):
    """A round's phase, how many Compute nodes it has, and how many it needs."""

    phase: Phase
    nodes: int
    needed: int


def lock(db: Connection, round_id: str) -> Locked:
    """Return what the round's row says, and lock it until the commit."""
    row = db.execute(_LOCKED, {"round_id": round_id}).one_or_none()
    if row is None:
        raise UnknownRound
    return Locked(Phase(row.phase), row.nodes, row.threshold)


def move(db: Connection, round_id: str, phase: Phase, event: AggregationEvent) -> None:
    following = after(AGGREGATION, phase, event)
    states = {"before": phase.value, "following": following.value}
    db.execute(_MOVED, {"round_id": round_id} | states)


def insert_partial_sum(
    db: Connection, signed: Signed[PartialSum], standing: Standing, *, needed: int
) -> None:
    body = signed.body
    row = {
        "round": body.round,
        "node": body.node,
        "digest": signed.digest,
        "cohort": body.cohort,
        "cohort_size": body.cohort_size,
        "nodes": named(body),
        "awaited": needed if body.nodes is None else len(body.nodes),
        "standing": standing.value,
        "document": signed.encode(),
    }
    db.execute(_NEW_SUM, row)


def named(body: PartialSum) -> str:
    """Return the nodes that a partial sum names, as they are stored."""
    return ",".join(body.nodes or ())


def count(db: Connection, table: Table, round_id: str) -> int:
    counted = select(func.count()).select_from(table).where(table.c.round == round_id)
    return db.execute(counted).scalar_one()


def find_abandonment(db: Connection, round_id: str, party: str) -> bytes | None:
    """Return `party`'s signed abandonment of the round, if there is one."""
    parameters = {"round_id": round_id, "party": party}
    return db.execute(_ABANDONMENT, parameters).scalar_one_or_none()


def insert_abandonment(db: Connection, signed: Signed[Abandonment]) -> None:
    insertion = schema.abandonments.insert().values(
        round=signed.body.round,
        party=signed.body.party,
        digest=signed.digest,
        document=signed.encode(),
    )
    db.execute(insertion)


def milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


@dataclass(frozen=True)
class RoundRecord:
    """A round's state: its signed spec, its phase and counts."""

    spec: bytes
    phase: Phase
    partial_sums: int
    evidence: int


def add_round(db: Connection, signed: Signed[RoundSpec]) -> bool:
    """Store an announced round; False if it is known.

    Raises:
        ConflictingDocument: another round of its job has its number, or a higher one.
    """
    body, columns = signed.body, schema.rounds.c
    is_new = insert_new(
        db,
        schema.rounds,
        id=signed.digest,
        job=body.job,
        number=body.number,
        spec=signed.encode(),
        phase=Phase.ANNOUNCED.value,
        nodes=len(body.compute_nodes),
        threshold=body.threshold,
        proceed_at=milliseconds(body.proceed_at if body.sharing.committee is None else EPOCH),
        give_up_at=milliseconds(body.give_up_at),
    )
    here = (columns.job == body.job) & (columns.number >= body.number)
    if is_new or not knows_round(db, signed.digest):
        other = here & (columns.id != signed.digest)
        if db.execute(select(columns.id).where(other).limit(1)).first() is not None:
            raise ConflictingDocument("the job had a round with this number, or a higher one")
    return is_new


def knows_round(db: Connection, round_id: str) -> bool:
    """Tell whether the round was announced."""
    return db.execute(_KNOWN, {"round_id": round_id}).first() is not None


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
        partial_sums=count(db, schema.partial_sums, round_id),
        evidence=count(db, schema.evidence, round_id)
        + len(find_partial_sums(db, round_id, Standing.WRONG)),
    )


def complete_rounds(db: Connection, now: datetime) -> Sequence[str]:
    """Return the open rounds with enough partial sums over one cohort for a result.

    Enough is one of each node or, from the round's `proceed_at` on, its threshold; of sums that
    name the nodes, one of each of these.
    """
    columns = schema.rounds.c
    may_proceed = columns.proceed_at <= milliseconds(now)
    most_sums = func.coalesce(_of_a_cohort(func.count(), func.count().desc()), 0)
    is_enough = (most_sums == columns.nodes) | ((_lacking() <= 0) & may_proceed)
    return _open_rounds(db, is_enough)


def overdue_rounds(db: Connection, now: datetime) -> Sequence[str]:
    """Return the open rounds that are past `give_up_at` and lack partial sums."""
    columns = schema.rounds.c
    is_over = columns.give_up_at <= milliseconds(now)
    return _open_rounds(db, is_over & (_lacking() > 0))


def oldest_open_round(db: Connection) -> bytes | None:
    """Return the signed spec of the open round that gives up first; None: none is open."""
    columns = schema.rounds.c
    query = select(columns.spec).where(columns.phase.in_([phase.value for phase in OPEN]))
    return db.execute(query.order_by(columns.give_up_at).limit(1)).scalar()


def publish(db: Connection, result: Signed[Result], *, stored: int, wrong: Collection[str]) -> bool:
    """Store the result of `stored` partial sums and end the round with it.

    Those of the nodes `wrong` are left out for they contradict the others. False if the round has
    ended already, or more partial sums have come meanwhile: they must be compared first.
    """
    body, sums = result.body, schema.partial_sums
    phase = lock(db, body.round).phase
    if phase not in OPEN or count(db, sums, body.round) != stored:
        return False
    move(db, body.round, phase, AggregationEvent.ENOUGH_PARTIAL_SUMS_STORED)
    for standing, nodes in (
        (Standing.USED, [each.node for each in body.partial_sums]),
        (Standing.WRONG, wrong),
    ):
        here = (sums.c.round == body.round) & sums.c.node.in_(nodes)
        db.execute(sums.update().where(here).values(standing=standing.value))
    db.execute(
        schema.results.insert().values(
            round=body.round, digest=result.digest, document=result.encode()
        )
    )
    return True


def abandon(db: Connection, decision: Signed[Abandonment], *, stored: int | None) -> bool:
    """End a round without a release; False if it has ended.

    `stored` is how many partial sums the decision was based on: False if there are more now. None
    means that they are too few for a result: False if they are not.
    """
    round_id = decision.body.round
    phase = lock(db, round_id).phase
    columns = schema.rounds.c
    lacking = select(_lacking() > 0).where(columns.id == round_id)
    if stored is None:
        holds = db.execute(lacking).scalar_one()
    else:
        holds = count(db, schema.partial_sums, round_id) == stored
    if phase not in OPEN or not holds:
        return False
    move(db, round_id, phase, AggregationEvent.GIVEN_UP)
    insert_abandonment(db, decision)
    return True


def find_partial_sums(
    db: Connection, round_id: str, standing: Standing | None = None
) -> Sequence[bytes]:
    """Return the round's signed partial sums, of one standing or all, ordered by node."""
    columns = schema.partial_sums.c
    query = select(columns.document).where(columns.round == round_id)
    if standing is not None:
        query = query.where(columns.standing == standing.value)
    return db.execute(query.order_by(columns.node)).scalars().all()


def find_newest_sum(db: Connection, node: str) -> Sequence[bytes]:
    """Return the node's signed partial sum of the published round that ended last, or nothing."""
    sums, rounds = schema.partial_sums.c, schema.rounds.c
    query = (
        select(sums.document)
        .join(schema.rounds, rounds.id == sums.round)
        .where(sums.node == node, rounds.phase == Phase.PUBLISHED.value)
        .order_by(*NEWEST_FIRST)
        .limit(1)
    )
    return db.execute(query).scalars().all()


def find_end(
    db: Connection, round_id: str, aggregator: str, standing: Standing | None = None
) -> tuple[bytes | None, bytes | None, Sequence[bytes]]:
    """Return a round's result or else the aggregator's abandonment, None while it is open.

    With a `standing`, and a result, also its partial sums of that standing.

    Raises:
        UnknownRound
    """
    if not knows_round(db, round_id):
        raise UnknownRound
    result = db.execute(_RESULT, {"round_id": round_id}).scalar_one_or_none()
    if result is None:
        return None, find_abandonment(db, round_id, aggregator), ()
    sums = () if standing is None else find_partial_sums(db, round_id, standing)
    return result, None, sums


def _lacking() -> ColumnElement[int]:
    """Return SQL for how many partial sums a round lacks at least for a total."""
    sums = schema.partial_sums.c
    lacking = func.max(sums.awaited) - func.count()
    return func.coalesce(_of_a_cohort(lacking, lacking), schema.rounds.c.threshold)


def _of_a_cohort(value: ColumnElement[int], order: ColumnElement[int]) -> ColumnElement[int]:
    """Return SQL for a value of the partial sums over one cohort, which is the first by `order`."""
    sums = schema.partial_sums.c
    return (
        select(value)
        .where(sums.round == schema.rounds.c.id)
        .group_by(sums.cohort, sums.cohort_size, sums.nodes)
        .correlate(schema.rounds)
        .order_by(order)
        .limit(1)
        .scalar_subquery()
    )


def _open_rounds(db: Connection, condition: ColumnElement[bool]) -> Sequence[str]:
    columns = schema.rounds.c
    is_open = columns.phase.in_([phase.value for phase in OPEN])
    query = select(columns.id).where(is_open & condition)
    return db.execute(query.order_by(columns.give_up_at)).scalars().all()
