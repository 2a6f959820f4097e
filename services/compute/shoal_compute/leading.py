"""Elects the replica that takes the steps of the node's rounds, by a lease in the database.

The lease only saves work. Every step is a compare-and-swap in the database, so two leaders at
once, or none for a while, do no harm. Leases run by the database's clock.
"""

import secrets
from typing import Any, Final

import structlog
from sqlalchemy import ColumnElement, Connection, Double, cast, func, literal, select, update

from shoal_compute.schema import lease
from shoal_hosting.storage.database import StorageThread, insert_ignoring

TERM_SECONDS: Final = 3.0

log = structlog.get_logger()


class Leadership:
    """This replica's hold on the lease."""

    def __init__(self, storage: StorageThread) -> None:
        """Begin without the lease."""
        self.leads = False
        self._storage = storage
        self._name = secrets.token_hex(16)  # of this process and no other

    async def renew(self) -> None:
        """Renew the lease, or take it if it is free.

        Raises:
            StorageUnavailable: this replica does not lead.
        """
        self.leads, leads = False, self.leads
        self.leads = await self._storage.run(take_lease, self._name, TERM_SECONDS)
        if self.leads and not leads:
            log.info("this replica leads")

    async def release(self) -> None:
        """Let another replica lead at once.

        Raises:
            StorageUnavailable: it will, when the lease has run out.
        """
        if self.leads:
            self.leads = False
            await self._storage.run(release_lease, self._name)


def take_lease(db: Connection, name: str, term_seconds: float) -> bool:
    """Take the lease if it is free, or renew it in good time; tell whether `name` holds it.

    Nothing is written while somebody else holds it, or while most of the term is left.
    """
    now = _now(db)
    until = now + literal(term_seconds, Double)
    own = (lease.c.holder == name) & (lease.c.until < now + literal(term_seconds * 2 / 3, Double))
    free = lease.c.until <= now
    db.execute(update(lease).where(own | free).values(holder=name, until=until))
    holder = select(lease.c.holder)
    if (held_by := db.execute(holder).scalar()) is None:
        first = insert_ignoring(db)(lease).values(one=1, holder=name, until=until)
        db.execute(first.on_conflict_do_nothing())
        held_by = db.execute(holder).scalar_one()
    return bool(held_by == name)


def release_lease(db: Connection, name: str) -> None:
    """End the lease if it is held by `name`."""
    db.execute(update(lease).where(lease.c.holder == name).values(until=0.0))


def _now(db: Connection) -> ColumnElement[Any]:
    """Return the database's clock in seconds since 1970."""
    if db.dialect.name == "postgresql":
        return cast(func.extract("epoch", func.clock_timestamp()), Double)
    return (func.julianday("now") - literal(2440587.5, Double)) * literal(86_400.0, Double)
