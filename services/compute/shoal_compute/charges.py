"""The node's ledger in its database: a hash-chained list; it adds nothing up and refuses no round.

A head row with the last entry's number and digest is locked from reading the list to adding to
it, so that whoever holds the lock knows all of it, and a place is given once, whichever replica
asks for it.
"""

import base64
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from pyroaring import BitMap
from sqlalchemy import Connection, Row, select, update

from shoal_compute.schema import charge_head, charges, rounds
from shoal_compute.shares import insert_ignoring
from shoal_protocol.encoding import format_time
from shoal_protocol.errors import LedgerBroken
from shoal_protocol.ledger import EMPTY, Head, LedgerEntry, population_digest
from shoal_protocol.rounds import RoundSpec

_BROKEN: Final = "entry {number} of the ledger is not one that this program wrote"


class Charged(NamedTuple):
    """An entry of the ledger, and the clients that it is about."""

    entry: LedgerEntry
    population: BitMap


def hold_charges(db: Connection) -> Head:
    """Keep everybody else from adding an entry until this transaction ends; return the last one."""
    held = select(charge_head.c.last, charge_head.c.digest).with_for_update()
    row = db.execute(held).one_or_none()
    if row is None:
        first = {"one": 1, "last": EMPTY.number, "digest": EMPTY.digest}
        db.execute(insert_ignoring(db)(charge_head).values(first).on_conflict_do_nothing())
        row = db.execute(held).one()
    return Head(*row)


def charges_after(db: Connection, number: int) -> Iterator[Charged]:
    """Yield each entry beyond `number`, in order; that they follow is not checked.

    Raises:
        LedgerBroken: a row is not one that this program wrote.
    """
    for row in db.execute(_entries().where(charges.c.number > number).order_by(charges.c.number)):
        yield _read(row)


def charge_of(db: Connection, round_id: str) -> LedgerEntry:
    """Return the entry that charged a round which is on file.

    Raises:
        LedgerBroken: as `charges_after`, or there is none.
    """
    query = _entries().where(rounds.c.id == round_id, charges.c.kind == "charge")
    row = db.execute(query).one_or_none()
    if row is None:
        raise LedgerBroken("a round on file is not in the ledger")
    return _read(row).entry


def charge(
    db: Connection, round_number: int, spec: RoundSpec, *, ledger: str, after: Head, at: datetime
) -> None:
    """Charge a round to its population; the caller holds the charges, whose head is `after`."""
    entry = LedgerEntry.charge(spec, ledger=ledger, after=after, at=at)
    _append(db, round_number, entry, base64.b64decode(spec.population))


def give_back(db: Connection, round_id: str, *, at: datetime) -> None:
    """Give a round's charge back, for it can no longer cost anyone.

    Raises:
        LedgerBroken: as `charge_of`.
    """
    after = hold_charges(db)
    entry = charge_of(db, round_id)
    query = select(charges.c.round, charges.c.population).where(charges.c.number == entry.number)
    round_number, population = db.execute(query).one()
    _append(db, round_number, entry.returned(after=after, at=at), population)


def _append(db: Connection, round_number: int, entry: LedgerEntry, population: bytes) -> None:
    columns = entry.model_dump(exclude={"round", "population", "clients", "at"})
    db.execute(
        charges.insert().values(
            **columns,
            round=round_number,
            population=population,
            at=format_time(entry.at),
            digest=entry.digest,
        )
    )
    db.execute(update(charge_head).values(last=entry.number, digest=entry.digest))


def _entries() -> Any:
    return select(charges, rounds.c.id.label("round_id")).join(rounds)


def _read(row: Row[Any]) -> Charged:
    """Build an entry from all columns of its row, so that any that was changed shows."""
    try:
        population = BitMap.deserialize(row.population)
        entry = LedgerEntry(
            ledger=row.ledger,
            number=row.number,
            previous=row.previous,
            kind=row.kind,
            round=row.round_id,
            job=row.job,
            population=population_digest(base64.b64encode(row.population).decode()),
            clients=len(population),
            mu=row.mu,
            epsilon=row.epsilon,
            at=row.at,
        )
    except (ValueError, IndexError, ValidationError):
        raise LedgerBroken(_BROKEN.format(number=row.number)) from None
    if entry.digest != row.digest:
        raise LedgerBroken(_BROKEN.format(number=row.number))
    return Charged(entry, population)
