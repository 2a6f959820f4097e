"""Answers analysts which jobs there are, and what is left of budgets; checks signed queries."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Connection

from shoal_protocol.certificates.study_request import JobsQuery, StudyRequest
from shoal_protocol.jobs.charges_asked import check_age
from shoal_protocol.jobs.membership import HolderQuery
from shoal_protocol.privacy.accounting import NOTHING, Balances
from shoal_protocol.privacy.job_costs import epsilon_left
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Role, decode
from shoal_protocol.wire.encoding import format_time
from shoal_protocol.wire.phases import JobPhase
from shoal_trainer import notices, schema, store
from shoal_trainer.resources import Resources
from shoal_trainer.store import JobRecord

_MOST_GROUPS: Final = 100  # of clients with as much left


QueryT = TypeVar("QueryT", bound=HolderQuery | JobsQuery)


async def check_query(resources: Resources, encoded: bytes, *kinds: type[QueryT]) -> QueryT:
    """Return a query of one of `kinds`, signed just now by who may send it.

    A data holder may be behind by versions of the manifest, and hears of the newest by a job.

    Raises:
        MalformedDocument, UnknownSigner, WrongSigner, BadSignature
        UnknownManifest, UnknownHolder, RevokedHolder: of a data holder's.
        WrongManifest: of an analyst's.
        StaleQuery: it was signed too long ago, or by a clock that is ahead.
    """
    book = resources.book
    signed = await resources.read(encoded, *kinds)
    if signed.body.signed_by is Role.HOLDER:
        book.get(signed.body.manifest).verify_in_force(signed, book.current)
    else:
        book.in_force(signed.body.manifest).verify(signed)
    check_age(signed.body.at, resources.clock())
    if isinstance(signed.body, HolderQuery):
        resources.heard[signed.body.holder] = resources.clock()
    return signed.body


class Listing:
    """What only analysts are told, of all analysts' jobs."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def answer(self, encoded: bytes) -> dict[str, Any]:
        """Answer a query that an analyst signed just now.

        `budgets` are groups of enrolled clients with the largest epsilon of one more job that each
        of them could pay, pure or Gaussian, by the public ledger and what open jobs may cost.

        Raises:
            as `check_query`
        """
        own = self._resources
        body = await check_query(own, encoded, JobsQuery)
        found = await own.storage.run(newest_jobs, after=body.after, count=body.count)
        joining = [each.job for each, _ in found if each.phase is JobPhase.JOINING]
        counts = await own.storage.run(notices.counts, joining)
        holders = own.book.current.roster.in_force
        return {
            "jobs": await asyncio.to_thread(_shown, found, counts, holders),
            "budgets": await asyncio.to_thread(_budgets, own.committed.copy(), own.book.current),
            "next": body.after + body.count if len(found) == body.count else None,
        }


def newest_jobs(db: Connection, *, after: int, count: int) -> Sequence[tuple[JobRecord, str]]:
    """Return `count` jobs and when each was submitted, the newest first, but the `after` newest."""
    columns = schema.jobs.c
    query = store.all_jobs().add_columns(columns.submitted_at)
    query = query.order_by(columns.submitted_at.desc(), columns.id).offset(after).limit(count)
    return [(store.job_record(row[:-1]), row.submitted_at) for row in db.execute(query)]


def _budgets(committed: Balances, consortium: Consortium) -> list[dict[str, Any]]:
    enrolled, cap = consortium.roster.enrolled_set, consortium.manifest.policy.cap
    charged = enrolled & committed.charged
    sizes = Counter(committed.of(charged).values())
    groups = sorted(sizes.items(), key=lambda each: (each[0].mu, each[0].epsilon))
    if untouched := len(enrolled) - len(charged):
        groups.insert(0, (NOTHING, untouched))
    if len(groups) > _MOST_GROUPS:  # the rest, none of whom have less left than this
        rest = sum(size for _, size in groups[_MOST_GROUPS - 1 :])
        groups = [*groups[: _MOST_GROUPS - 1], (committed.largest(enrolled), rest)]
    shown = []
    for spent, size in groups:
        pure, gaussian = epsilon_left(cap, spent)
        shown.append({"clients": size, "left": {"pure": pure, "gaussian": gaussian}})
    return shown


def _shown(
    found: Sequence[tuple[JobRecord, str]], counts: dict[str, dict[str, int]], holders: int
) -> list[dict[str, Any]]:
    shown = []
    for record, submitted_at in found:
        request = decode(record.request, StudyRequest).body
        shown.append(
            {
                "job": record.job,
                "phase": record.phase.value,
                "submitted_at": submitted_at,
                "ends_by": format_time(request.ends_by),
                "analyst": request.analyst,
                "task": request.task.name,
                "columns": list(request.task.column_names),
                "purpose": request.purpose,
                "epsilon": request.privacy.epsilon,
                "delta": request.privacy.delta,
                "approvals": counts.get(record.job, notices.NOBODY) | {"holders": holders},
                "reason": record.reason,
            }
        )
    return shown
