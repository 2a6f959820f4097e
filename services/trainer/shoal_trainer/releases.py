"""Makes and stores the report and the release certificate of a finished job.

Both are made once, of what is on file, so that everybody gets the same bytes, but for the proof
that the consortium's log has the certificate, which is put beside it later. The certificate
follows once every Compute node has signed what it charged of the job.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nacl.signing import SigningKey
from pyroaring import BitMap
from sqlalchemy import Connection, select

from shoal_protocol.certificates.posterior_report import PosteriorReport
from shoal_protocol.certificates.release_certificate import (
    CertifiedRound,
    LostRound,
    ReleaseCertificate,
    pack,
)
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.rounds.attestations import Abandonment, PartialSum, Result
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.studies import Posterior
from shoal_protocol.trust.manifest import Parties
from shoal_protocol.wire.documents import Signed, decode, sign
from shoal_protocol.wire.encoding import decode_clients
from shoal_protocol.wire.phases import JobEvent, Phase
from shoal_trainer import schema
from shoal_trainer.schema import totals
from shoal_trainer.store import find_job, move_job


@dataclass(frozen=True)
class Release:
    """A published round as it is on file: signed documents in wire form, and what it was charged.

    `partial_sums` are those that the result rests on, in any order.
    """

    spec: bytes
    result: bytes
    partial_sums: Sequence[bytes]
    charge: LedgerEntry


@dataclass(frozen=True)
class Loss:
    """A round that released nothing as it is on file, and what it was charged.

    `abandonment` is None if clients were never told of it.
    """

    spec: bytes
    abandonment: bytes | None
    charge: LedgerEntry


def find_losses(db: Connection, job: str) -> Sequence[Loss]:
    """Return a job's lost rounds, in order."""
    rounds = schema.rounds.c
    lost = (rounds.job == job) & (rounds.phase == Phase.ABANDONED.value)
    query = select(rounds.id, rounds.spec, rounds.outcome).where(lost)
    return [
        Loss(row.spec, row.outcome, schema.ledger.charge_of(db, row.id))
        for row in db.execute(query.order_by(rounds.number)).all()
    ]


def find_releases(db: Connection, job: str) -> Sequence[Release]:
    """Return a job's published rounds, in order."""
    rounds, sums = schema.rounds.c, schema.partial_sums.c
    published = (rounds.job == job) & (rounds.phase == Phase.PUBLISHED.value)
    query = select(rounds.id, rounds.spec, rounds.outcome).where(published)
    return [
        Release(
            row.spec,
            row.outcome,
            db.execute(select(sums.document).where(sums.round == row.id)).scalars().all(),
            schema.ledger.charge_of(db, row.id),
        )
        for row in db.execute(query.order_by(rounds.number)).all()
    ]


@dataclass(frozen=True)
class Filed:
    """All that is on file of a finished job, in wire form."""

    request: bytes
    population: str
    releases: Sequence[Release]
    losses: Sequence[Loss]
    report: bytes
    totals: Sequence[bytes]


@dataclass(frozen=True)
class Finished:
    """A finished job's documents, decoded."""

    request: Signed[StudyRequest]
    population: BitMap
    rounds: Sequence[CertifiedRound]
    lost: Sequence[LostRound]
    report: Signed[PosteriorReport]
    totals: Sequence[Signed[JobTotal]]


def conclude(
    request: bytes,
    releases: Sequence[Release],
    losses: Sequence[Loss],
    *,
    population: BitMap,
    posterior: Posterior,
    trainer: str,
    key: SigningKey,
) -> Signed[PosteriorReport]:
    """Return the report of a job, given in wire form, with this posterior.

    `population` are the clients who joined. The same arguments give the same bytes.
    """
    report = PosteriorReport.of(
        decode(request, StudyRequest).body,
        [
            (decode(each.spec, RoundSpec).body, decode(each.result, Result).body)
            for each in releases
        ],
        lost=[decode(each.spec, RoundSpec).body for each in losses],
        population=population,
        posterior=posterior,
    )
    return sign(report, trainer, key)


def read_finished(filed: Filed) -> Finished:
    """Decode a finished job."""
    return Finished(
        decode(filed.request, StudyRequest),
        decode_clients(filed.population),
        [_certified(each) for each in filed.releases],
        [_lost(each) for each in filed.losses],
        decode(filed.report, PosteriorReport),
        [decode(each, JobTotal) for each in filed.totals],
    )


def certify(
    job: Finished,
    totals: Sequence[Signed[JobTotal]],
    *,
    version: Callable[[str], Parties],
    trainer: str,
    key: SigningKey,
) -> Signed[ReleaseCertificate]:
    """Return the certificate of a finished job; `version` knows manifests by digest.

    `totals` are those of all its Compute nodes, in order. The same arguments give the same bytes.
    """
    certificate = ReleaseCertificate.of(
        job.request,
        job.rounds,
        job.lost,
        totals,
        job.report,
        population=job.population,
        version=version,
    )
    return sign(certificate, trainer, key)


def _certified(release: Release) -> CertifiedRound:
    result = decode(release.result, Result)
    decoded = [decode(each, PartialSum) for each in release.partial_sums]
    by_node = {each.body.node: each for each in decoded}
    return CertifiedRound(
        spec=decode(release.spec, RoundSpec),
        result=result,
        partial_sums=tuple(by_node[each.node] for each in result.body.partial_sums),
        charge=release.charge,
    )


def _lost(loss: Loss) -> LostRound:
    word = loss.abandonment
    return LostRound(
        spec=decode(loss.spec, RoundSpec),
        abandonment=None if word is None else decode(word, Abandonment),
        charge=loss.charge,
    )


def finish_job(db: Connection, report: Signed[PosteriorReport]) -> None:
    """Store a job's report, and end the job with it."""
    move_job(db, report.body.job, JobEvent.POSTERIOR_READY)
    row = {"job": report.body.job, "document": report.encode()}
    db.execute(schema.reports.insert().values(row))


def uncertified_jobs(db: Connection) -> Sequence[str]:
    """Return the jobs that are finished and have no certificate."""
    certified = select(schema.certificates.c.job)
    job = schema.reports.c.job
    return db.execute(select(job).where(job.not_in(certified)).order_by(job)).scalars().all()


def find_finished(db: Connection, job: str) -> Filed:
    """Return all that is on file of a finished job; it may be large."""
    record, columns = find_job(db, job), totals.c
    report = db.execute(select(schema.reports.c.document).where(schema.reports.c.job == job))
    signed = db.execute(select(columns.document).where(columns.job == job))
    return Filed(
        record.request,
        record.population or "",
        find_releases(db, job),
        find_losses(db, job),
        report.scalar_one(),
        signed.scalars().all(),
    )


def keep_totals(
    db: Connection,
    job: str,
    signed: Sequence[Signed[JobTotal]],
    certificate: Signed[ReleaseCertificate] | None,
) -> None:
    """Store totals of a finished job and, with the last of them, its certificate."""
    for each in signed:
        row = {"job": job, "node": each.body.node, "document": each.encode()}
        db.execute(totals.insert().values(row))
    if certificate is not None:
        packed = pack(certificate.encode())
        insert = schema.certificates.insert()
        db.execute(insert.values(job=job, document=packed, logged=False))


def unlogged_jobs(db: Connection) -> Sequence[str]:
    """Return the jobs whose certificates lack the proof that the log has them."""
    columns = schema.certificates.c
    return db.execute(select(columns.job).where(~columns.logged)).scalars().all()


def keep_log_proof(db: Connection, job: str, certificate: bytes) -> None:
    """Put the certificate with its proof, compressed, in the place of the one without."""
    table = schema.certificates
    values = {"document": certificate, "logged": True}
    db.execute(table.update().where(table.c.job == job).values(**values))


def find_report(db: Connection, job: str) -> bytes | None:
    """Return the wire form of a job's report, if there is one."""
    columns = schema.reports.c
    return db.execute(select(columns.document).where(columns.job == job)).scalar_one_or_none()


class StoredCertificate(NamedTuple):
    """A compressed certificate, and whether the proof is in it that the log has it."""

    document: bytes
    logged: bool


def find_certificate(db: Connection, job: str) -> StoredCertificate | None:
    """Return a job's certificate, if there is one."""
    columns = schema.certificates.c
    row = db.execute(select(columns.document, columns.logged).where(columns.job == job)).first()
    return None if row is None else StoredCertificate(*row)


def find_outcome(db: Connection, round_id: str) -> bytes:
    """Return the aggregator's signed word on a round that has ended."""
    columns = schema.rounds.c
    outcome: bytes = db.execute(select(columns.outcome).where(columns.id == round_id)).scalar_one()
    return outcome
