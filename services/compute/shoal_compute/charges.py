"""The append-only list of what rounds cost their clients; it adds nothing up and refuses nothing.

An entry's number says its place, without gaps. A head row is locked from reading the list to
adding to it, so that whoever holds the lock knows all of it, and a place is given once.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pyroaring import BitMap
from sqlalchemy import Connection, select, update

from shoal_compute.schema import charge_head, charges
from shoal_compute.shares import insert_ignoring


@dataclass(frozen=True)
class Charge:
    """What a round may cost each client of its population, as squared GDP parameter.

    A negative one gives back what its round was charged before.
    """

    mu_squared: float
    population: BitMap


def hold_charges(db: Connection) -> None:
    """Keep everybody else from adding a charge until this transaction ends."""
    held = select(charge_head.c.last).with_for_update()
    if db.execute(held).scalar() is None:
        db.execute(insert_ignoring(db)(charge_head).values(one=1, last=0).on_conflict_do_nothing())
        db.execute(held).scalar_one()


def charges_after(db: Connection, number: int) -> Iterator[tuple[int, Charge]]:
    """Yield each entry beyond `number` with its own number, in order."""
    query = select(charges.c.number, charges.c.mu_squared, charges.c.population)
    for found, mu_squared, population in db.execute(
        query.where(charges.c.number > number).order_by(charges.c.number)
    ):
        yield found, Charge(mu_squared, BitMap.deserialize(population))


def charge(db: Connection, round_number: int, cost: Charge) -> None:
    """Charge a round; the caller holds the charges."""
    _append(db, round_number, cost.mu_squared, cost.population.serialize(), given_back=False)


def give_back(db: Connection, round_number: int) -> None:
    """Charge the round's cost once more with its sign turned, for it can no longer cost anyone."""
    hold_charges(db)
    of_round = charges.c.round == round_number
    query = select(charges.c.mu_squared, charges.c.population)
    [(mu_squared, population)] = db.execute(query.where(of_round, ~charges.c.given_back)).all()
    _append(db, round_number, -mu_squared, population, given_back=True)


def _append(
    db: Connection, round_number: int, mu_squared: float, population: bytes, *, given_back: bool
) -> None:
    following = update(charge_head).values(last=charge_head.c.last + 1)
    number = db.execute(following.returning(charge_head.c.last)).scalar_one()
    db.execute(
        charges.insert().values(
            number=number,
            round=round_number,
            given_back=given_back,
            mu_squared=mu_squared,
            population=population,
        )
    )
