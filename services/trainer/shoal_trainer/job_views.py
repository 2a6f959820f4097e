"""Reads jobs and remaining budgets from the store for the routes; names no client."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Connection

from shoal_hosting.operators.view import Table, View, by_phase, ledger_in_words
from shoal_protocol.certificates.study_request import JobsQuery, StudyRequest
from shoal_protocol.jobs.charges_asked import check_age
from shoal_protocol.jobs.membership import HolderQuery, JobWithdrawn
from shoal_protocol.privacy.accounting import NOTHING, Balances
from shoal_protocol.privacy.job_costs import epsilon_left
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Role, decode
from shoal_protocol.wire.encoding import decode_clients, format_time
from shoal_protocol.wire.errors import WrongPhase
from shoal_protocol.wire.phases import JobPhase
from shoal_trainer import notices, releases, schema, store
from shoal_trainer.certifying import Certifier
from shoal_trainer.jobs import CertificateIncomplete, DocumentsDeleted, JobFailed, JobFinished
from shoal_trainer.resources import Resources
from shoal_trainer.schema import crowds, jobs, ledger, rounds
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


def newest_jobs(db: Connection, *, after: int, count: int) -> Sequence[JobRecord]:
    """Return `count` jobs, the newest first, but the `after` newest."""
    columns = schema.jobs.c
    query = (
        store.all_jobs()
        .order_by(columns.submitted_at.desc(), columns.id)
        .offset(after)
        .limit(count)
    )
    return [store.job_record(row) for row in db.execute(query)]


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
    records: Sequence[JobRecord], counts: dict[str, dict[str, int]], holders: int
) -> list[dict[str, Any]]:
    shown = []
    for record in records:
        request = decode(record.request, StudyRequest).body
        shown.append(
            {
                "job": record.job,
                "phase": record.phase.value,
                "submitted_at": format_time(record.submitted_at),
                "ends_by": format_time(record.ends_by),
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


NEWEST_ROUNDS: Final = 16  # whose details a job's state has: it must not grow with the rounds


class JobViews:
    """Reads jobs, rounds, reports and the ledger for the public routes."""

    def __init__(self, resources: Resources, certifier: Certifier) -> None:
        """Read from the storage of `resources`; `certifier` knows what certificates wait for."""
        self._resources = resources
        self._certifier = certifier
        self._storage = resources.storage

    async def look(self) -> View:
        """Return what only the trainer's console shows."""
        manifest = self._resources.book.current.manifest
        return View(*await self._storage.run(_look), (*manifest.compute_nodes, manifest.aggregator))

    async def list_joining(self) -> dict[str, Any]:
        """Return the jobs that may be joined, for data holders."""
        joining = await self._storage.run(store.list_jobs, JobPhase.JOINING)
        return {"jobs": [{"job": job, "phase": JobPhase.JOINING.value} for job in joining]}

    async def list_for_analyst(self, encoded: bytes) -> dict[str, Any]:
        """Answer a query that an analyst signed just now, about all analysts' jobs.

        `budgets` are groups of enrolled clients with the largest epsilon of one more job that each
        of them could pay, pure or Gaussian, by the public ledger and what open jobs may cost.

        Raises:
            as `check_query`
        """
        own = self._resources
        body = await check_query(own, encoded, JobsQuery)
        records = await own.storage.run(newest_jobs, after=body.after, count=body.count)
        joining = [each.job for each in records if each.phase is JobPhase.JOINING]
        counts = await own.storage.run(notices.counts, joining)
        holders = own.book.current.roster.in_force
        return {
            "jobs": await asyncio.to_thread(_shown, records, counts, holders),
            "budgets": await asyncio.to_thread(_budgets, own.committed.copy(), own.book.current),
            "next": body.after + body.count if len(records) == body.count else None,
        }

    async def state(self, job: str) -> dict[str, Any]:
        """Return where a job stands.

        Raises:
            UnknownJob
        """
        record = await self._storage.run(store.find_job, job)
        counts, rounds = await self._storage.run(store.newest_rounds, job, count=NEWEST_ROUNDS)
        population = None if record.population is None else decode_clients(record.population)
        return {
            "job": job,
            "phase": record.phase.value,
            "population_size": None if population is None else len(population),
            "joined": record.joined,
            "left": len(await self._storage.run(store.left_holders, job)),
            "approvals": {
                **await self._storage.run(notices.count, job),
                "holders": self._resources.book.current.roster.in_force,
            },
            "ends_by": format_time(record.ends_by),
            "round_counts": counts,
            "rounds": rounds,
            "reason": record.reason,
        }

    async def spec(self, job: str, number: int) -> bytes | None:
        """Return the signed spec of a round that every service accepted, None if it may come.

        Raises:
            UnknownJob, JobFailed, JobWithdrawn
            JobFinished: the job had fewer rounds.
        """
        if job in self._resources.opened:
            newest, opened = self._resources.opened[job]
            return opened if newest >= number else None
        record, spec = await self._storage.run(store.find_spec, job, number)
        _refuse_failed(record)
        if spec is None and record.phase is JobPhase.FINISHED:
            raise JobFinished
        return spec

    async def report(self, job: str) -> tuple[str, bytes] | None:
        """Return the digest and the bytes of the signed report, None while there is none.

        Raises:
            UnknownJob, JobFailed, JobWithdrawn, DocumentsDeleted
        """
        if job in self._resources.opened:  # it runs
            return None
        found = await self._storage.run(releases.find_report, job)
        if found is None:
            await self._refuse_ended(job)
        return found

    async def certificate(self, job: str) -> tuple[str, bytes] | None:
        """Return a tag of the signed release certificate, and the certificate compressed.

        None while Compute nodes of a finished job have not signed their totals.

        Raises:
            UnknownJob, JobFailed, JobWithdrawn, DocumentsDeleted
            WrongPhase: the job is not finished yet.
        """
        found = await self._storage.run(releases.find_certificate, job)
        if found is None:
            record = await self._refuse_ended(job)
            if record.phase is not JobPhase.FINISHED:
                raise WrongPhase("the job is not finished, and has no certificate yet")
        return found

    async def _refuse_ended(self, job: str) -> JobRecord:
        record = await self._storage.run(store.find_job, job)
        _refuse_failed(record)
        if record.erased:
            raise DocumentsDeleted
        return record

    async def logged(self, job: str) -> bool | None:
        """Return True once the proof is there that the log has the certificate; None before."""
        found = await self._storage.run(releases.find_certificate, job)
        return True if found is not None and found[0].endswith(releases.LOGGED) else None

    async def withdrawal(self, job: str) -> bytes:
        """Return the wire form of the withdrawal that the job's analyst signed.

        Raises:
            UnknownJob, DocumentsDeleted
            WrongPhase: the job is not withdrawn.
        """
        record = await self._storage.run(store.find_job, job)
        found = await self._storage.run(store.find_withdrawal, job)
        if found is None:
            if record.erased:
                raise DocumentsDeleted
            raise WrongPhase("the job is not withdrawn")
        return found

    async def incomplete(self, job: str) -> CertificateIncomplete:
        """Return why a finished job has no certificate yet."""
        missing = (await self._certifier.unsigned(job)).missing
        return CertificateIncomplete(
            "not all of the job's Compute nodes have signed how many of its rounds they charged; "
            f"missing: {', '.join(missing)}"
            if missing
            else None
        )

    async def ledger(self, *, after: int, count: int) -> dict[str, Any]:
        """Return up to `count` entries that follow entry `after`, with what was spent up to each.

        `next` is the last one's number, None if there was no more than that.

        `cumulative_epsilon` is at the present policy's delta, of the client of the entry's
        population who has spent most. `withdrawn` are all jobs that their analysts withdrew.

        Raises:
            LedgerBroken
        """
        own = self._resources
        lines = await own.storage.run(own.ledger.page, after=after, count=count)
        delta = own.book.current.manifest.policy.delta
        shown = await asyncio.to_thread(lambda: [line.shown(delta) for line in lines])
        withdrawn = await own.storage.run(store.list_jobs, JobPhase.WITHDRAWN)
        return {
            "entries": shown,
            "next": after + count if len(lines) == count else None,
            "withdrawn": withdrawn,
        }


def _refuse_failed(record: JobRecord) -> None:
    if record.phase is JobPhase.FAILED:
        raise JobFailed(record.reason)
    if record.phase is JobPhase.WITHDRAWN:
        raise JobWithdrawn


def _look(db: Connection) -> tuple[list[Table], dict[str, str]]:
    shown = (("Jobs", jobs), ("Rounds", rounds), ("Crowd jobs", crowds.jobs))
    return [by_phase(db, *each) for each in shown], ledger_in_words(db, ledger)
