"""Statements that the aggregator's transactions are made of; each runs inside one of the caller."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from sqlalchemy import Connection, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite

from shoal_aggregator import schema
from shoal_protocol.attestations import Abandonment, PartialSum
from shoal_protocol.documents import Signed
from shoal_protocol.errors import UnknownRound
from shoal_protocol.phases import AGGREGATION, AggregationEvent, Phase, after

OPEN: Final = (Phase.ANNOUNCED, Phase.COLLECTING)


class Standing(StrEnum):
    """What a partial sum on file is to the round's result."""

    OPEN = "open"  # there is none yet
    USED = "used"
    LATE = "late"  # it agrees with the result, and came after it
    WRONG = "wrong"  # it contradicts those that the result is made of


@dataclass(frozen=True)
class Stored:
    """A signed document's digest and wire form."""

    digest: str
    document: bytes


def insert_new(db: Connection, table: Table, **values: object) -> bool:
    insert = postgresql.insert if db.dialect.name == "postgresql" else sqlite.insert
    statement = insert(table).values(**values).on_conflict_do_nothing()
    # a row comes back if it is new; the row count of an insertion is not always known
    return db.execute(statement.returning(*table.primary_key)).first() is not None


def lock(db: Connection, round_id: str) -> Phase:
    """Return the phase, and let nobody else change the round until the commit."""
    columns = schema.rounds.c
    found = db.execute(select(columns.phase).where(columns.id == round_id).with_for_update())
    phase = found.scalar_one_or_none()
    if phase is None:
        raise UnknownRound
    return Phase(phase)


def dispensable(db: Connection, round_id: str) -> int:
    """Return how many Compute nodes a round can do without."""
    columns = schema.rounds.c
    query = select(columns.nodes - columns.threshold).where(columns.id == round_id)
    spare: int = db.execute(query).scalar_one()
    return spare


def move(db: Connection, round_id: str, phase: Phase, event: AggregationEvent) -> None:
    following = after(AGGREGATION, phase, event)
    here = (schema.rounds.c.id == round_id) & (schema.rounds.c.phase == phase.value)
    db.execute(schema.rounds.update().where(here).values(phase=following.value))


def insert_partial_sum(db: Connection, signed: Signed[PartialSum], standing: Standing) -> None:
    body = signed.body
    insertion = schema.partial_sums.insert().values(
        round=body.round,
        node=body.node,
        digest=signed.digest,
        cohort=body.cohort,
        cohort_size=body.cohort_size,
        standing=standing.value,
        document=signed.encode(),
    )
    db.execute(insertion)


def count(db: Connection, table: Table, round_id: str) -> int:
    counted = select(func.count()).select_from(table).where(table.c.round == round_id)
    return db.execute(counted).scalar_one()


def find_abandonment(db: Connection, round_id: str, party: str) -> Stored | None:
    """Return `party`'s abandonment of the round, if there is one."""
    columns = schema.abandonments.c
    here = (columns.round == round_id) & (columns.party == party)
    row = db.execute(select(columns.digest, columns.document).where(here)).one_or_none()
    return None if row is None else Stored(*row)


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
