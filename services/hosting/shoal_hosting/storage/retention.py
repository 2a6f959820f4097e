"""Deletes what a service need not keep any longer, by the consortium's policy; shows what it keeps.

The policy's `retention_days` count from a job's end. What caps and proofs rest on stays for ever.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import structlog
from fastapi import APIRouter, Response
from sqlalchemy import ColumnElement, Connection, Table, delete, func, select, tuple_

from shoal_hosting.server.openapi import answers, having, refusals
from shoal_hosting.server.replies import shown
from shoal_protocol.wire.service_errors import StorageUnavailable, UnsteadyClock

if TYPE_CHECKING:
    from shoal_hosting.service import Resources

BETWEEN_LOOKS: Final = timedelta(hours=1)
LEAP: Final = timedelta(hours=1)
STEADY: Final = timedelta(days=1)
"""So long a service's clock went on without a leap before documents go by it unasked.

A clock that is years ahead would have all of them deleted; meanwhile its peers refuse what it says,
and its operator is told.
"""
MOST_JOBS: Final = 16
MOST_ROWS: Final = 32
"""How many documents of a kind go in one transaction, while requests wait. Some are megabytes."""
PATH: Final = "/v1/retention"

_EPOCH: Final = datetime.fromtimestamp(0, UTC)

log = structlog.get_logger()

Jobs = Sequence[str]


@dataclass(frozen=True)
class Keeping:
    """Documents of one kind that a service keeps, and why.

    `of` says which rows of `table` go with the documents of some jobs; None: they stay for ever.
    Where `newest_stays`, it leaves out those that nothing newer has replaced yet.
    """

    kind: str
    why: str
    table: Table
    of: Callable[[Jobs], ColumnElement[bool]] | None = None
    newest_stays: bool = False


@dataclass(frozen=True)
class Keepings:
    """All that a service keeps, kind by kind, in the order in which it is deleted.

    `due` returns up to so many jobs that ended before a moment and have documents left. `begin` is
    told of them before anything of them is deleted, in the same transaction, and `note` of those
    that have nothing left, in the last one. A service that does not know when jobs end counts from
    their last round, and gives each the longest time that the policy allows a job.
    """

    kinds: Sequence[Keeping]
    due: Callable[[Connection, datetime, int], Jobs]
    begin: Callable[[Connection, Jobs], None] = lambda _db, _jobs: None
    note: Callable[[Connection, Jobs], None] = lambda _db, _jobs: None
    knows_ends: bool = True


class Retention:
    """Deletes what is due, an hour after the last time, or at once when it is asked to."""

    def __init__(self, resources: "Resources", keepings: Keepings) -> None:
        """Keep what `keepings` lists, in the storage of `resources`."""
        self._own, self._keepings = resources, keepings
        self._next_at: datetime | None = None
        self._is_in_log = True  # a crash may have come between a deletion and cutting off the log
        self._seen_at: datetime | None = None
        self._steady_since: datetime | None = None
        self.routes = APIRouter(dependencies=resources.for_the_operator, responses=refusals(401))
        shape = having("retention_days", "is_due", "kinds")
        self.routes.add_api_route(PATH, self._show, methods=["GET"], **answers(shape))
        self.routes.add_api_route(PATH, self._do, methods=["POST"], **answers(shape, UnsteadyClock))

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
        if await storage.run(delete_due, self._keepings, before, MOST_JOBS):
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
        if self._keepings.knows_ends:
            return before
        versions = self._own.book.versions  # a job lasts as long as the one it is bound to allows
        longest = max(each.manifest.policy.maximum_job_seconds for each in versions)
        return before - timedelta(seconds=longest)

    async def _show(self) -> Response:
        """What this service keeps, how much of it, why, and until when."""
        own = self._own
        before = self._before(own.clock())
        days = own.book.current.manifest.policy.retention_days
        kinds = await own.storage.run(count, self._keepings, days)
        due = () if before is None else await own.storage.run(self._keepings.due, before, 1)
        return shown({"retention_days": days, "is_due": bool(due), "kinds": kinds})

    async def _do(self, trust_clock: bool = False) -> Response:
        """Delete at once what is due by the policy, and say what stays.

        With `trust_clock` also where the clock did not go on without a leap for a day yet.
        """
        now = self._own.clock()
        before = self._before(now)
        if before is not None and not (self._is_steady(now) or trust_clock):
            raise UnsteadyClock(
                f"the service's clock, {now:%Y-%m-%d %H:%M} UTC, was not seen to go on for a day "
                "without a leap: if it is right, add --trust-clock; else wait that long"
            )
        while await self._delete(before):
            pass
        return await self._show()


def delete_due(db: Connection, keepings: Keepings, before: datetime, most: int) -> bool:
    """Delete documents of up to `most` jobs that ended before a moment; tell if any was due.

    At most `MOST_ROWS` of one kind go, and of the next kind none before all of this one have gone.
    """
    jobs = keepings.due(db, before, most)
    if not jobs:
        return False
    keepings.begin(db, jobs)
    for each in keepings.kinds:
        if each.of is not None and _delete_some(db, each.table, each.of(jobs)):
            return True
    keepings.note(db, jobs)
    return True


def _delete_some(db: Connection, table: Table, chosen: ColumnElement[bool]) -> bool:
    """Delete up to `MOST_ROWS` rows of those; tell whether there may be more."""
    key = tuple(table.primary_key)
    found = [tuple(row) for row in db.execute(select(*key).where(chosen).limit(MOST_ROWS))]
    if found:
        db.execute(delete(table).where(tuple_(*key).in_(found)))
    return len(found) == MOST_ROWS


def count(db: Connection, keepings: Keepings, days: int | None) -> list[dict[str, Any]]:
    """Return each kind with the number of its documents, and until when they stay."""
    until = "for ever" if days is None else f"{days} days from the job's end"
    newest = "" if days is None else ", the newest until the next"
    return [
        {
            "kind": each.kind,
            "why": each.why,
            "documents": db.execute(select(func.count()).select_from(each.table)).scalar_one(),
            "stays": "for ever" if each.of is None else until + newest * each.newest_stays,
        }
        for each in keepings.kinds
    ]
