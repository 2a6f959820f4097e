"""Deletes what a service need not keep any longer, by the consortium's policy; shows what it keeps.

The policy's `retention_days` count from a job's end. What caps and proofs rest on stays for ever.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import structlog
from fastapi import APIRouter, Response
from sqlalchemy import ColumnElement, Connection, Table, delete, func, select

from shoal_hosting.server.openapi import JSON, answers, having
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.service_errors import StorageUnavailable

if TYPE_CHECKING:
    from shoal_hosting.service import Resources

BETWEEN_LOOKS: Final = timedelta(hours=1)
MOST_JOBS: Final = 16
"""How many jobs' documents go in one transaction, while requests wait."""
PATH: Final = "/v1/retention"

log = structlog.get_logger()

Jobs = Sequence[str]


@dataclass(frozen=True)
class Keeping:
    """Documents of one kind that a service keeps, and why.

    `of` says which rows of `table` go with the documents of some jobs; None: they stay for ever.
    """

    kind: str
    why: str
    table: Table
    of: Callable[[Jobs], ColumnElement[bool]] | None = None


@dataclass(frozen=True)
class Keepings:
    """All that a service keeps, kind by kind, in the order in which it is deleted.

    `due` returns up to so many jobs that ended before a moment and have documents left; `note` is
    told which of them have none any more, in the same transaction.
    """

    kinds: Sequence[Keeping]
    due: Callable[[Connection, datetime, int], Jobs]
    note: Callable[[Connection, Jobs], None]


@dataclass(frozen=True)
class Kept:
    """A kind of documents as it is shown: how many there are, and until when they stay."""

    kind: str
    why: str
    documents: int
    stays: str


class Retention:
    """Deletes what is due, an hour after the last time, or at once when it is asked to."""

    def __init__(self, resources: "Resources", keepings: Keepings) -> None:
        """Keep what `keepings` lists, in the storage of `resources`."""
        self._own, self._keepings = resources, keepings
        self._next_at: datetime | None = None
        self.routes = APIRouter(dependencies=resources.for_the_operator)
        shape = answers(having("retention_days", "is_due", "kinds"))
        self.routes.add_api_route(PATH, self._show, methods=["GET"], **shape)
        self.routes.add_api_route(PATH, self._do, methods=["POST"], **shape)

    async def step(self) -> None:
        """Delete some of what is due, if it is time to look."""
        now = self._own.clock()
        if self._next_at is not None and now < self._next_at:
            return
        try:
            if not await self._delete(now):
                self._next_at = now + BETWEEN_LOOKS
        except StorageUnavailable:
            log.warning("storage unavailable: what is due is deleted once it answers again")

    async def _delete(self, now: datetime) -> bool:
        """Delete the documents of a few jobs; tell whether there may be more."""
        before = self._before(now)
        if before is None:
            return False
        storage = self._own.storage
        if not await storage.run(delete_due, self._keepings, before, MOST_JOBS):
            return False
        await asyncio.to_thread(storage.truncate_log)
        log.info("documents were deleted: the policy keeps them no longer")
        return True

    def _before(self, now: datetime) -> datetime | None:
        days = self._own.book.current.manifest.policy.retention_days
        return None if days is None else now - timedelta(days=days)

    async def _show(self) -> Response:
        """What this service keeps, how much of it, why, and until when."""
        return Response(canonical_json(await self._shown()), media_type=JSON)

    async def _do(self) -> Response:
        """Delete at once what is due by the policy, and say what stays."""
        now = self._own.clock()
        while await self._delete(now):
            pass
        return await self._show()

    async def _shown(self) -> dict[str, Any]:
        own = self._own
        before = self._before(own.clock())
        days = own.book.current.manifest.policy.retention_days
        found = await own.storage.run(count, self._keepings, days)
        due = () if before is None else await own.storage.run(self._keepings.due, before, 1)
        return {
            "retention_days": days,
            "is_due": bool(due),
            "kinds": [asdict(each) for each in found],
        }


def delete_due(db: Connection, keepings: Keepings, before: datetime, most: int) -> bool:
    """Delete the documents of up to `most` jobs that ended before a moment; tell if any was due."""
    jobs = keepings.due(db, before, most)
    if not jobs:
        return False
    for each in keepings.kinds:
        if each.of is not None:
            db.execute(delete(each.table).where(each.of(jobs)))
    keepings.note(db, jobs)
    return True


def count(db: Connection, keepings: Keepings, days: int | None) -> list[Kept]:
    """Return each kind with the number of its documents, and until when they stay."""
    until = "for ever" if days is None else f"{days} days from the job's end"
    return [
        Kept(
            each.kind,
            each.why,
            db.execute(select(func.count()).select_from(each.table)).scalar_one(),
            "for ever" if each.of is None else until,
        )
        for each in keepings.kinds
    ]
