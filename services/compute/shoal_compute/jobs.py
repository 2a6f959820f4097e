"""Keeps analysts' signed job requests and withdrawals, and signs what finished jobs were charged.

Rounds are held to the request of their job. Anyone may relay requests and withdrawals: the
analyst's signature decides. Once this node signed a job's total it refuses further rounds of it.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from nacl.signing import VerifyKey
from sqlalchemy import Connection, delete, exists, func, select, update

from shoal_compute.round_book import RoundBook
from shoal_compute.schema import jobs, journal, rounds
from shoal_protocol.jobs.job_request import JobRequest, check_job, job_refusal
from shoal_protocol.jobs.membership import JobWithdrawal, check_ending
from shoal_protocol.jobs.totals import JobEnd, JobTotal
from shoal_protocol.journal import Link
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import (
    LedgerBroken,
    RefusedJob,
    RefusedSpec,
    UnknownSigner,
    WrongSigner,
)
from shoal_protocol.wire.service_errors import ConflictingDocument, MissingRequest
from shoal_service.job_standing import ask_standing
from shoal_service.keepers import Keepers, newest_loss
from shoal_service.service import Resources
from shoal_service.storage.database import insert_new
from shoal_service.storage.journal import Journal, JournalWriter

TOTAL: Final = JobTotal.model_fields["kind"].default
MOST_JOBS: Final = 1_000  # of one analyst, that are not over; a request has 1 MiB at most
MOST_EMPTY_TOTALS: Final = 1_000
"""Of jobs without a round here, such as those whose rounds began once the node had left."""


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
        return signed.digest, await self._own.storage.run(_add, signed, self._own.clock())

    def _validate(self, signed: Signed[JobRequest]) -> None:
        request, consortium = signed.body, self._own.book.get(signed.body.manifest)
        consortium.verify(signed)
        if consortium.party(request.analyst) not in self._own.book.current.manifest.analysts:
            raise UnknownSigner("the manifest in force does not list the analyst")
        check_job(request, consortium.manifest)
        if reason := job_refusal(request, consortium.manifest.policy, now=self._own.clock()):
            raise RefusedJob(reason)

    async def withdraw(self, encoded: bytes) -> tuple[str, bool]:
        """Take a signed withdrawal; return the job, and whether it is new. It is durable then.

        Raises:
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature
            MissingRequest: nobody has handed the job's request to this node.
            StorageUnavailable: nothing was stored.
        """
        signed = await self._own.read(encoded, JobWithdrawal)
        request, _ = await self._own.storage.run(_find, signed.body.job)
        check_ending(signed, request, self._own.book.get(request.manifest))
        return request.digest, await self._own.storage.run(_end, signed)


def request_of(db: Connection, job: str) -> JobRequest:
    """Return the request whose terms a job's rounds are held to.

    Raises:
        MissingRequest: nobody has handed it to this node.
        RefusedSpec: the analyst has withdrawn the job.
    """
    request, withdrawal = _find(db, job)
    if withdrawal is not None:
        raise RefusedSpec("the analyst has withdrawn the job")
    return request


def _find(db: Connection, job: str) -> tuple[JobRequest, bytes | None]:
    """Return a job's request, and its withdrawal if there is one.

    Raises:
        MissingRequest
    """
    query = select(jobs.c.request, jobs.c.withdrawal).where(jobs.c.job == job)
    found = db.execute(query).one_or_none()
    if found is None:
        raise MissingRequest
    return decode(found.request, JobRequest).body, found.withdrawal


def withdrawn_jobs(db: Connection) -> Sequence[str]:
    """Return the jobs on file that their analysts withdrew."""
    query = select(jobs.c.job).where(jobs.c.withdrawal.is_not(None)).order_by(jobs.c.job)
    return db.execute(query).scalars().all()


def _add(db: Connection, request: Signed[JobRequest], now: datetime) -> bool:
    """Store a request; False if it is on file."""
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
    return insert_new(db, jobs, **row)


def _end(db: Connection, signed: Signed[JobWithdrawal]) -> bool:
    """Store a withdrawal; False if there is one."""
    columns = jobs.c
    first = update(jobs).where(columns.job == signed.body.job, columns.withdrawal.is_(None))
    return db.execute(first.values(withdrawal=signed.encode())).rowcount == 1


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


class Totals:
    """Signs totals, at the trainer's word; each is durable before it leaves."""

    def __init__(
        self, resources: Resources, rounds: RoundBook, keepers: Keepers, journal: Journal
    ) -> None:
        """Sign as the node whose `resources` they are; `keepers` tell if it was set back."""
        self._own, self._rounds = resources, rounds
        self._keepers, self._journal = keepers, journal
        self._reading = resources.worker("announcing")
        self._failed: set[str] = set()  # jobs, by their trainer's word

    async def is_busy(self) -> bool:
        """Tell whether a round is open, or a job may still end with a total of this node.

        Nobody tells a node that was retired of a job that fails without it: it asks the trainer.
        """
        if self._rounds.live:
            return True
        going = await self._own.storage.run(_open_jobs, self._own.clock())
        for job, request in [each for each in going if each[0] not in self._failed]:
            manifest = decode(request, JobRequest).body.manifest
            standing = await ask_standing(self._own, job, manifest=manifest)
            if standing is None or not standing.has_failed:
                return True
            self._failed.add(job)
        return False

    async def sign(self, encoded: bytes) -> bytes:
        """Return this node's signed total of the job that a trainer's signed word ends.

        Whoever asks again gets the same bytes.

        Raises:
            MalformedDocument, UnsupportedVersion, BadSignature, UnknownSigner, WrongSigner
            UnknownManifest: bound to a version that was never accepted here.
            RefusedJob: too many jobs ended without a round here.
            LedgerBroken: this node was set back, or lost what it may have signed of the job.
            NotReady: too few keepers of the journal answer.
            StorageUnavailable
        """
        signed = await self._own.read(encoded, JobEnd)
        await self._reading.run(self._verify, signed)
        end, node = signed.body, self._own.name

        def attest(charged: tuple[str, ...], entry: Link) -> Signed[JobTotal]:
            return self._own.sign(
                JobTotal(
                    manifest=end.manifest,
                    entry=entry,
                    job=end.job,
                    node=node,
                    rounds=charged,
                    report=end.report,
                )
            )

        await self._keepers.check_begun()
        total = await self._journal.run(end_job, end.job, attest, signer=signed.signer)
        self._rounds.over(end.job)
        await self._keepers.acknowledged(decode(total, JobTotal).body.entry)
        return total

    def _verify(self, signed: Signed[JobEnd]) -> None:
        consortium = self._own.book.get(signed.body.manifest)
        in_force = self._own.book.current.manifest.trainer
        if consortium.manifest.trainer.name != in_force.name:
            consortium.verify(signed)  # its jobs have no further round
        elif signed.signer != in_force.name:
            raise WrongSigner("the trainer ends its jobs")
        else:  # a key that was replaced ends no job
            signed.verify_signature(VerifyKey(bytes.fromhex(in_force.verify_key)))
        if self._own.name not in [node.name for node in consortium.manifest.compute_nodes]:
            raise WrongSigner("this node is no Compute node under that manifest")


def end_job(
    writer: JournalWriter,
    job: str,
    attest: Callable[[tuple[str, ...], Link], Signed[JobTotal]],
    *,
    signer: str,
) -> bytes:
    """Keep the total that `attest` signs over the charged rounds; return it or the one on file.

    Raises:
        WrongSigner: the job's rounds are another trainer's than `signer`, who ends it.
        RefusedJob: there are as many totals as may be of jobs without a round here.
        LedgerBroken: this node was set back, or lost what it may have signed of the job.
    """
    # no round is charged meanwhile, and a loss that another replica's operator accepts comes before
    # or after
    writer.lock()
    # a round is on file if and only if it was charged, and charged in order
    in_order = select(rounds.c.id).where(rounds.c.job == job).order_by(rounds.c.place)
    charged = tuple(writer.db.execute(in_order).scalars())
    specs = select(rounds.c.spec).where(rounds.c.id == (charged[0] if charged else None))
    first = [decode(each, RoundSpec) for each in writer.db.execute(specs).scalars()]
    if any(spec.signer != signer for spec in first):
        raise WrongSigner("another trainer asks the job's rounds, and ends it")
    loss = newest_loss(writer.db, writer.tables)
    if loss is not None and writer.find(TOTAL, job) is None:
        if not any(spec.body.number == 0 and spec.body.opened_at >= loss.at for spec in first):
            raise LedgerBroken("this node lost what it signed of the job, as was accepted")
    if not charged and not writer.find(TOTAL, job):
        columns = journal.entries.c
        empty = (columns.kind == TOTAL) & columns.subject.not_in(select(rounds.c.job))
        if writer.db.execute(select(func.count()).where(empty)).scalar_one() >= MOST_EMPTY_TOTALS:
            raise RefusedJob("too many jobs ended of which this node has no round")
    return writer.append(TOTAL, job, partial(attest, charged))


def _open_jobs(db: Connection, now: datetime) -> list[tuple[str, bytes]]:
    """Return the jobs that had a round here and no total, and that may go on, with requests."""
    had_a_round = exists().where(rounds.c.job == jobs.c.job)
    entries = journal.entries.c
    is_signed = exists().where(entries.kind == TOTAL, entries.subject == jobs.c.job)
    query = select(jobs.c.job, jobs.c.request).where(
        jobs.c.ends_by > now.timestamp(), jobs.c.withdrawal.is_(None), had_a_round, ~is_signed
    )
    return [(job, bytes(request)) for job, request in db.execute(query)]


def check_next(db: Connection, spec: RoundSpec) -> None:
    """Refuse a round, on file since just now, that is not the newest of a job that goes on.

    The caller holds the journal.

    Raises:
        ConflictingDocument
    """
    if journal.find(db, TOTAL, spec.job) is not None:
        raise ConflictingDocument("the job is over: this node has signed how many rounds it had")
    later = (rounds.c.job == spec.job) & (rounds.c.place > spec.number)
    if db.execute(select(rounds.c.id).where(later).limit(1)).first() is not None:
        raise ConflictingDocument("the job had a round with a higher number")
