"""Deletes what a service need not keep any longer, by the consortium's policy.

The policy's `retention_days` count from a job's end. What caps and proofs rest on stays for ever.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog
from sqlalchemy import ColumnElement, Connection, Table, delete, select, tuple_

from shoal_protocol.wire.service_errors import StorageUnavailable

if TYPE_CHECKING:
    from shoal_service.service import Resources

BETWEEN_LOOKS: Final = timedelta(hours=1)
LEAP: Final = timedelta(hours=1)
STEADY: Final = timedelta(days=1)
"""A service's clock must run so long without a leap before documents are deleted by it.

A clock that is years ahead would have all of them deleted; meanwhile its peers refuse what it says,
and its operator is told.
"""
MOST_JOBS: Final = 16
MOST_ROWS: Final = 32
"""How many documents of a kind go in one transaction, while requests wait. Some are megabytes."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)

log = structlog.get_logger()

Forget = Callable[[Connection, datetime], bool]
"""Deletes some documents of jobs that ended before a moment, and tells whether any were due.

What it does in one transaction is bounded by `MOST_JOBS` and `MOST_ROWS`.
"""


class Retention:
    """Deletes what is due, an hour after the last time."""

    def __init__(self, resources: "Resources", forget: Forget, *, knows_ends: bool = True) -> None:
        """Have `forget` delete from the storage of `resources`.

        A service that does not know when jobs end counts from their last round, and gives each the
        longest time that the policy allows a job.
        """
        self._own, self._forget, self._knows_ends = resources, forget, knows_ends
        self._next_at: datetime | None = None
        self._is_in_log = True  # a crash may have come between a deletion and cutting off the log
        self._seen_at: datetime | None = None
        self._steady_since: datetime | None = None

    async def step(self) -> None:
        """Delete some of what is due, if it is time to look."""
        now = self._own.clock()
        is_steady = self._is_steady(now)
        if self._next_at is not None and now < self._next_at:
            return
        before = self._before(now)
        if before is not None and not is_steady:
            before = _EPOCH  # what was begun goes on
        try:
            if not await self._delete(before):
                self._next_at = now + BETWEEN_LOOKS
        except StorageUnavailable:
            log.warning("storage unavailable: what is due is deleted once it answers again")

    def _is_steady(self, now: datetime) -> bool:
        seen_at, self._seen_at = self._seen_at, now
        if seen_at is None or not timedelta() <= now - seen_at <= LEAP:
            self._steady_since, self._next_at = now, None
        return self._steady_since is not None and now - self._steady_since >= STEADY

    async def _delete(self, before: datetime | None) -> bool:
        """Delete some documents; tell whether there may be more, and else cut off the log.

        Raises:
            StorageUnavailable: the log is in use; the next call tries again.
        """
        if before is None:
            return False
        storage = self._own.storage
        if await storage.run(self._forget, before):
            self._is_in_log = True
            return True
        if self._is_in_log:
            await asyncio.to_thread(storage.truncate_log)
            self._is_in_log = False
            log.info("what the policy keeps no longer is deleted")
        return False

    def _before(self, now: datetime) -> datetime | None:
        days = self._own.book.current.manifest.policy.retention_days
        if days is None:
            return None
        before = now - timedelta(days=days)
        if self._knows_ends:
            return before
        versions = self._own.book.versions  # a job lasts as long as the one it is bound to allows
        longest = max(each.manifest.policy.maximum_job_seconds for each in versions)
        return before - timedelta(seconds=longest)


def delete_some(
    db: Connection, table: Table, chosen: ColumnElement[bool], most: int | None = None
) -> bool:
    """Delete up to `most` of the chosen rows of a table; tell whether there may be more.

    Without `most` they are `MOST_ROWS`.
    """
    key, most = tuple(table.primary_key), most or MOST_ROWS
    found = [tuple(row) for row in db.execute(select(*key).where(chosen).limit(most))]
    if found:
        db.execute(delete(table).where(tuple_(*key).in_(found)))
    return len(found) == most
