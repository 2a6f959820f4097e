"""Keeps analysts' signed job requests, which rounds are held to, and their withdrawals.

Anyone may relay them: the analyst's signature decides.
"""

from datetime import datetime
from typing import Final

from sqlalchemy import Connection, delete, func, select, update

from shoal_compute.schema import jobs
from shoal_hosting.service import Resources
from shoal_hosting.storage.database import insert_ignoring
from shoal_protocol.jobs.job_request import JobRequest, check_job, job_refusal
from shoal_protocol.jobs.membership import JobWithdrawal, check_ending
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import (
    MalformedDocument,
    RefusedJob,
    RefusedSpec,
    UnknownJob,
    UnknownSigner,
)
from shoal_protocol.wire.service_errors import MissingRequest

_REQUEST: Final = b'{"request":'
MOST_JOBS: Final = 1_000  # of one analyst, that are not over; a request has 1 MiB at most


class Jobs:
    """Job requests and withdrawals on file at this node."""

    def __init__(self, resources: Resources) -> None:
        """Keep jobs in the storage of `resources`."""
        self._own = resources
        self._reading = resources.worker("announcing")

    async def take(self, encoded: bytes) -> tuple[str, bool]:
        """Take a signed job request; return the job, and whether it is new. It is durable then.

        Raises:
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature
            UnknownManifest: it is bound to a manifest that is not known here.
            RefusedJob: the consortium's policy does not allow it, or the analyst has too many.
            StorageUnavailable: nothing was stored.
        """
        signed = await self._own.read(encoded, JobRequest)
        await self._reading.run(self._validate, signed)
        return signed.digest, await self._own.storage.run(_add, signed, None, self._own.clock())

    def _validate(self, signed: Signed[JobRequest]) -> None:
        request, consortium = signed.body, self._own.book.get(signed.body.manifest)
        consortium.verify(signed)
        if consortium.party(request.analyst) not in self._own.book.current.manifest.analysts:
            raise UnknownSigner("the manifest in force does not list the analyst")
        check_job(request, consortium.manifest)
        if reason := job_refusal(request, consortium.manifest.policy, now=self._own.clock()):
            raise RefusedJob(reason)

    async def withdraw(self, encoded: bytes) -> tuple[str, bool]:
        """Take `{"request", "withdrawal"}`, both signed; return the job, and whether it is new.

        Raises:
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature
            UnknownManifest: they are bound to a manifest that is not known here.
            RefusedJob: the analyst has too many jobs here.
            StorageUnavailable: nothing was stored.
        """
        first, middle, last = encoded.rpartition(b',"withdrawal":')
        if not middle or not first.startswith(_REQUEST) or not last.endswith(b"}"):
            raise MalformedDocument("a withdrawal comes with the request that it withdraws")
        request = await self._own.read(first.removeprefix(_REQUEST), JobRequest)
        signed = await self._own.read(last[:-1], JobWithdrawal)
        await self._reading.run(self._verify_withdrawal, request, signed)
        return signed.body.job, await self._own.storage.run(
            _add, request, signed, self._own.clock()
        )

    def _verify_withdrawal(
        self, request: Signed[JobRequest], signed: Signed[JobWithdrawal]
    ) -> None:
        consortium = self._own.book.get(request.body.manifest)
        consortium.verify(request)
        check_ending(signed, request.body, consortium)

    async def show_withdrawal(self, job: str) -> bytes:
        """Return the wire form of a job's withdrawal.

        Raises:
            UnknownJob: none is known here.
        """
        found = await self._own.storage.run(_find_withdrawal, job)
        if found is None:
            raise UnknownJob("no withdrawal of this job is known here")
        return found


def request_of(db: Connection, job: str) -> JobRequest:
    """Return the request whose terms a job's rounds are held to.

    Raises:
        MissingRequest: nobody has handed it to this node.
        RefusedSpec: the analyst has withdrawn the job.
    """
    query = select(jobs.c.request, jobs.c.withdrawal).where(jobs.c.job == job)
    found = db.execute(query).one_or_none()
    if found is None:
        raise MissingRequest
    if found.withdrawal is not None:
        raise RefusedSpec("the analyst has withdrawn the job")
    return decode(found.request, JobRequest).body


def _add(
    db: Connection,
    request: Signed[JobRequest],
    withdrawal: Signed[JobWithdrawal] | None,
    now: datetime,
) -> bool:
    """Store a request, with its withdrawal if there is one; False if nothing of it is new."""
    columns, body = jobs.c, request.body
    on_file = select(columns.job).where(columns.job == request.digest)
    if db.execute(on_file).first() is None:
        _make_room(db, body.analyst, now)
    row = {
        "job": request.digest,
        "analyst": body.analyst,
        "ends_by": body.ends_by.timestamp(),
        "request": request.encode(),
    }
    insert = insert_ignoring(db)(jobs).values(row).on_conflict_do_nothing()
    new = db.execute(insert.returning(columns.job)).first() is not None
    if withdrawal is None:
        return new
    first = update(jobs).where(columns.job == request.digest, columns.withdrawal.is_(None))
    withdrawn = first.values(withdrawal=withdrawal.encode()).returning(columns.job)
    return db.execute(withdrawn).first() is not None


def _make_room(db: Connection, analyst: str, now: datetime) -> None:
    """Forget an analyst's jobs that are over if there is no room for another one.

    Raises:
        RefusedJob: all the analyst's jobs go on.
    """
    own = jobs.c.analyst == analyst
    count = select(func.count()).where(own)
    if db.execute(count).scalar_one() < MOST_JOBS:
        return
    db.execute(delete(jobs).where(own, jobs.c.ends_by < now.timestamp()))
    if db.execute(count).scalar_one() >= MOST_JOBS:
        raise RefusedJob(f"of one analyst {MOST_JOBS:,} jobs are kept at a time, no more")


def _find_withdrawal(db: Connection, job: str) -> bytes | None:
    query = select(jobs.c.withdrawal).where(jobs.c.job == job)
    found: bytes | None = db.execute(query).scalar_one_or_none()
    return found
