"""Deletes what a service need not keep any longer, by the consortium's policy.

The policy's `retention_days` count from a job's end. What caps and proofs rest on stays for ever.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

Jobs = Sequence[str]


Chosen = Callable[[Jobs], ColumnElement[bool]]
"""Which rows of a table are deleted with the documents of some jobs."""
Step = Callable[[Connection, Jobs], bool]
"""Deletes up to `MOST_ROWS` documents of some jobs, and tells whether there may be more."""


@dataclass(frozen=True)
class Deletions:
    """What a service deletes of jobs that ended long ago; all else stays for ever.

    `steps` are in the order in which documents go. `due` returns
    up to so many jobs that ended before a moment and have documents left. `begin` is
    told of them before anything of them is deleted, in the same transaction, and `note` of those
    that have nothing left, in the last one. A service that does not know when jobs end counts from
    their last round, and gives each the longest time that the policy allows a job.
    """

    steps: Sequence[Step]
    due: Callable[[Connection, datetime, int], Jobs]
    begin: Callable[[Connection, Jobs], None] = lambda _db, _jobs: None
    note: Callable[[Connection, Jobs], None] = lambda _db, _jobs: None
    knows_ends: bool = True


class Retention:
    """Deletes what is due, an hour after the last time."""

    def __init__(self, resources: "Resources", deletions: Deletions) -> None:
        """Delete what `deletions` lists from the storage of `resources`."""
        self._own, self._deletions = resources, deletions
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
        if await storage.run(delete_due, self._deletions, before, MOST_JOBS):
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
        if self._deletions.knows_ends:
            return before
        versions = self._own.book.versions  # a job lasts as long as the one it is bound to allows
        longest = max(each.manifest.policy.maximum_job_seconds for each in versions)
        return before - timedelta(seconds=longest)


def delete_due(db: Connection, deletions: Deletions, before: datetime, most: int) -> bool:
    """Delete documents of up to `most` jobs that ended before a moment; tell if any was due.

    At most `MOST_ROWS` of one kind go, and of the next kind none before all of this one have gone.
    """
    jobs = deletions.due(db, before, most)
    if not jobs:
        return False
    deletions.begin(db, jobs)
    if any(step(db, jobs) for step in deletions.steps):
        return True
    deletions.note(db, jobs)
    return True


@dataclass(frozen=True)
class Deleting:
    """The step that deletes rows of a table."""

    table: Table
    chosen: Chosen

    def __call__(self, db: Connection, jobs: Jobs) -> bool:
        """Delete up to `MOST_ROWS` rows of those jobs; tell whether there may be more."""
        key = tuple(self.table.primary_key)
        query = select(*key).where(self.chosen(jobs)).limit(MOST_ROWS)
        found = [tuple(row) for row in db.execute(query)]
        if found:
            db.execute(delete(self.table).where(tuple_(*key).in_(found)))
        return len(found) == MOST_ROWS
