"""The aggregator's transactions, for `StorageThread.run`; each leaves a round in one of its phases.

A round's row is locked first, so that of two decisions only one is made.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, func, select

from shoal_aggregator import schema
from shoal_aggregator.rows import (
    OPEN,
    Standing,
    Stored,
    count,
    find_abandonment,
    insert_abandonment,
    insert_new,
    lock,
    milliseconds,
    move,
)
from shoal_protocol.attestations import Abandonment, Result
from shoal_protocol.documents import Signed
from shoal_protocol.errors import ConflictingDocument, UnknownRound
from shoal_protocol.phases import AggregationEvent, Phase
from shoal_protocol.rounds import RoundSpec


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
        nodes=len(signed.body.compute_nodes),
        threshold=signed.body.threshold,
        proceed_at=milliseconds(signed.body.proceed_at),
        give_up_at=milliseconds(signed.body.give_up_at),
    )
    here = (columns.job == body.job) & (columns.number >= body.number)
    if is_new or not knows_round(db, signed.digest):
        other = here & (columns.id != signed.digest)
        if db.execute(select(columns.id).where(other).limit(1)).first() is not None:
            raise ConflictingDocument("the job had a round with this number, or a higher one")
    return is_new


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
        partial_sums=count(db, schema.partial_sums, round_id),
        evidence=count(db, schema.evidence, round_id)
        + len(find_partial_sums(db, round_id, Standing.WRONG)),
    )


def complete_rounds(db: Connection, now: datetime) -> Sequence[str]:
    """Return the open rounds with enough partial sums over one cohort for a result.

    Enough is one of each node or, from the round's `proceed_at` on, its threshold.
    """
    columns = schema.rounds.c
    most, may_proceed = _most_sums(), columns.proceed_at <= milliseconds(now)
    is_enough = (most == columns.nodes) | ((most >= columns.threshold) & may_proceed)
    return _open_rounds(db, is_enough)


def overdue_rounds(db: Connection, now: datetime) -> Sequence[str]:
    """Return the open rounds that are past `give_up_at` and lack partial sums."""
    columns = schema.rounds.c
    is_over = columns.give_up_at <= milliseconds(now)
    return _open_rounds(db, is_over & (_most_sums() < columns.threshold))


def publish(db: Connection, result: Signed[Result], *, stored: int, wrong: Collection[str]) -> bool:
    """Store the result of `stored` partial sums and end the round with it.

    Those of the nodes `wrong` are left out for they contradict the others. False if the round has
    ended already, or more partial sums have come meanwhile: they must be compared first.
    """
    body, sums = result.body, schema.partial_sums
    phase = lock(db, body.round)
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
    phase = lock(db, round_id)
    columns = schema.rounds.c
    lacking = select(_most_sums() < columns.threshold).where(columns.id == round_id)
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
) -> Sequence[Stored]:
    """Return the round's partial sums, of one standing or all, ordered by node."""
    columns = schema.partial_sums.c
    query = select(columns.digest, columns.document).where(columns.round == round_id)
    if standing is not None:
        query = query.where(columns.standing == standing.value)
    return [Stored(*row) for row in db.execute(query.order_by(columns.node))]


def find_newest_sum(db: Connection, node: str) -> Sequence[Stored]:
    """Return the node's partial sum of the published round that ended last, or nothing."""
    sums, rounds = schema.partial_sums.c, schema.rounds.c
    query = (
        select(sums.digest, sums.document)
        .join(schema.rounds, rounds.id == sums.round)
        .where(sums.node == node, rounds.phase == Phase.PUBLISHED.value)
        .order_by(rounds.proceed_at.desc(), rounds.number.desc())
        .limit(1)
    )
    return [Stored(*row) for row in db.execute(query)]


def find_result(db: Connection, round_id: str) -> Stored | None:
    """Return the round's result, if it is published."""
    columns = schema.results.c
    query = select(columns.digest, columns.document).where(columns.round == round_id)
    row = db.execute(query).one_or_none()
    return None if row is None else Stored(*row)


def find_decision(db: Connection, round_id: str, aggregator: str) -> Stored | None:
    """Return the aggregator's own abandonment of the round, if that is how it ended.

    Raises:
        UnknownRound
    """
    if not knows_round(db, round_id):
        raise UnknownRound
    return find_abandonment(db, round_id, aggregator)


def _most_sums() -> ColumnElement[int]:
    """Return SQL for the number of a round's partial sums over the cohort that has the most."""
    sums = schema.partial_sums.alias()
    counted = (
        select(func.count())
        .where(sums.c.round == schema.rounds.c.id)
        .group_by(sums.c.cohort, sums.c.cohort_size)
        .correlate(schema.rounds)
        .order_by(func.count().desc())
        .limit(1)
        .scalar_subquery()
    )
    return func.coalesce(counted, 0)


def _open_rounds(db: Connection, condition: ColumnElement[bool]) -> Sequence[str]:
    columns = schema.rounds.c
    is_open = columns.phase.in_([phase.value for phase in OPEN])
    query = select(columns.id).where(is_open & condition)
    return db.execute(query.order_by(columns.give_up_at)).scalars().all()
