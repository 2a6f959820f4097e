"""Keeps which machine of each data holder counts: that of the highest epoch, and the first of it.

A holder's own signature says which that is. A node that was set back hears it from the holder,
which asks at each start and before each join.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, func, select, update

from shoal_compute.schema import machines, rounds
from shoal_protocol.jobs.charges import ChargesQuery
from shoal_protocol.wire.documents import Signed
from shoal_service.storage.database import insert_new

_COUNTING: Final = (
    select(machines.c.holder, machines.c.epoch, machines.c.rounds)
    .where(machines.c.holder.between(bindparam("least"), bindparam("greatest")))
    .where(machines.c.epoch > 0)
    .order_by(machines.c.holder)
    .with_for_update(read=True)
)


class Machine(NamedTuple):
    """The machine of a data holder that counts."""

    epoch: int
    rounds: int  # the last round here when its epoch became known


def register(db: Connection, signed: Signed[ChargesQuery]) -> bytes:
    """Let the machine that signed count, unless another one does; return the one's query that does.

    The transaction waits for those that store shares of the holder's other machine.
    """
    body = signed.body
    row = {
        "epoch": body.epoch,
        "instance": body.instance,
        "rounds": db.execute(select(func.coalesce(func.max(rounds.c.number), 0))).scalar_one(),
        "query": signed.encode(),
    }
    if not insert_new(db, machines, holder=body.holder, **row):
        older = (machines.c.holder == body.holder) & (machines.c.epoch < body.epoch)
        db.execute(update(machines).where(older).values(row))
    kept = select(machines.c.query).where(machines.c.holder == body.holder)
    return bytes(db.execute(kept).scalar_one())


def counting(db: Connection, holders: Sequence[int]) -> dict[int, Machine]:
    """Return the machine that counts of those of `holders` that were ever restored.

    Also of others between the least and the greatest of them. None of them is superseded before
    the caller's transaction ends.
    """
    held = db.execute(_COUNTING, {"least": min(holders), "greatest": max(holders)})
    return {holder: Machine(epoch, last) for holder, epoch, last in held}
