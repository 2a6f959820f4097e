"""Signs what this node charged for a finished job; the node then refuses further rounds of it."""

from collections.abc import Callable
from datetime import datetime

from nacl.signing import VerifyKey
from sqlalchemy import Connection, exists, select

from shoal_compute.round_book import RoundBook
from shoal_compute.schema import jobs, ledger, rounds, totals
from shoal_hosting.job_standing import ask_standing
from shoal_hosting.service import Resources
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.jobs.totals import JobEnd, JobTotal
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import WrongSigner
from shoal_protocol.wire.service_errors import ConflictingDocument


class Totals:
    """Signs totals, at the trainer's word; each is durable before it leaves."""

    def __init__(self, resources: Resources, rounds: RoundBook) -> None:
        """Sign as the node whose `resources` they are."""
        self._own, self._rounds = resources, rounds
        self._reading = resources.worker("announcing")
        self._failed: set[str] = set()  # jobs, by their trainer's word

    async def is_busy(self) -> bool:
        """Tell whether a round is open, or a job may still end with a total of this node.

        Nobody tells a node that was retired of a job that fails without it: it asks the trainer.
        """
        if self._rounds.live:
            return True
        going = await self._own.storage.run(_open_jobs, self._own.clock())
        for job, request in going:
            if job not in self._failed and not await self._has_failed(job, request):
                return True
            self._failed.add(job)
        return False

    async def _has_failed(self, job: str, request: bytes) -> bool:
        manifest = decode(request, JobRequest).body.manifest
        standing = await ask_standing(self._own, job, manifest=manifest)
        return standing is not None and standing.has_failed

    async def sign(self, encoded: bytes) -> bytes:
        """Return this node's signed total of the job that a trainer's signed word ends.

        Whoever asks again gets the same bytes.

        Raises:
            MalformedDocument, UnsupportedVersion, BadSignature, UnknownSigner, WrongSigner
            UnknownManifest: bound to a version that was never accepted here.
            StorageUnavailable
        """
        signed = await self._own.read(encoded, JobEnd)
        await self._reading.run(self._verify, signed)
        total = await self._own.storage.run(end_job, signed.body, self._signed)
        self._rounds.over(signed.body.job)
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

    def _signed(self, end: JobEnd, charged: tuple[str, ...]) -> Signed[JobTotal]:
        body = JobTotal(manifest=end.manifest, job=end.job, node=self._own.name, rounds=charged)
        return self._own.sign(body)


def end_job(
    db: Connection, end: JobEnd, attest: Callable[[JobEnd, tuple[str, ...]], Signed[JobTotal]]
) -> bytes:
    """Store the total that `attest` signs over the charged rounds; return it or the stored one."""
    ledger.hold(db)  # as announcing does, so that no round is charged meanwhile
    kept = db.execute(select(totals.c.document).where(totals.c.job == end.job)).scalar()
    if kept is not None:
        return bytes(kept)
    # a round is on file if and only if it was charged, and charged in order
    query = select(rounds.c.id).where(rounds.c.job == end.job).order_by(rounds.c.place)
    document = attest(end, tuple(db.execute(query).scalars())).encode()
    db.execute(totals.insert().values(job=end.job, document=document))
    return document


def _open_jobs(db: Connection, now: datetime) -> list[tuple[str, bytes]]:
    """Return the jobs that had a round here and no total, and that may go on, with requests."""
    had_a_round = exists().where(rounds.c.job == jobs.c.job)
    is_signed = exists().where(totals.c.job == jobs.c.job)
    query = select(jobs.c.job, jobs.c.request).where(
        jobs.c.ends_by > now.timestamp(), jobs.c.withdrawal.is_(None), had_a_round, ~is_signed
    )
    return [(job, bytes(request)) for job, request in db.execute(query)]


def check_next(db: Connection, spec: RoundSpec) -> None:
    """Refuse a round, on file since just now, that is not the newest of a job that goes on.

    The caller holds the ledger.

    Raises:
        ConflictingDocument
    """
    if db.execute(select(totals.c.job).where(totals.c.job == spec.job)).first() is not None:
        raise ConflictingDocument("the job is over: this node has signed how many rounds it had")
    later = (rounds.c.job == spec.job) & (rounds.c.place > spec.number)
    if db.execute(select(rounds.c.id).where(later).limit(1)).first() is not None:
        raise ConflictingDocument("the job had a round with a higher number")
