"""Makes and stores the report and the release certificate of a finished job.

Both are made once, of what is on file, so that everybody gets the same bytes, but for the proof
that the consortium's log has the certificate, which is put beside it later. The certificate
follows once every Compute node has signed what it charged of the job.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.phases import FINISHED, JobEvent, Phase
from shoal_trainer import schema
from shoal_trainer.schema import totals
from shoal_trainer.store import find_job, move_job

LOGGED: Final = "-logged"


@dataclass(frozen=True)
class EndedRound:
    """A round that has ended, as it is on file: signed documents in wire form, and its charge.

    `outcome` is the aggregator's word; None for a round that clients were never told of.
    `partial_sums` are those that a result rests on, in any order.
    """

    spec: bytes
    is_lost: bool
    outcome: bytes | None
    partial_sums: Sequence[bytes]
    charge: LedgerEntry

    def read(self) -> CertifiedRound | LostRound:
        """Return the round as a certificate holds it."""
        spec, outcome = decode(self.spec, RoundSpec), self.outcome
        if self.is_lost:
            word = None if outcome is None else decode(outcome, Abandonment)
            return LostRound(spec=spec, abandonment=word, charge=self.charge)
        result = decode(outcome or b"", Result)
        sums = {each.body.node: each for each in (decode(s, PartialSum) for s in self.partial_sums)}
        return CertifiedRound(
            spec=spec,
            result=result,
            partial_sums=tuple(sums[each.node] for each in result.body.partial_sums),
            charge=self.charge,
        )


def find_rounds(db: Connection, job: str) -> Sequence[EndedRound]:
    """Return a job's rounds that have ended, in order; they may be large."""
    rounds, sums = schema.rounds.c, schema.partial_sums.c
    ended = (rounds.job == job) & rounds.phase.in_([phase.value for phase in FINISHED])
    query = select(rounds.id, rounds.spec, rounds.phase, rounds.outcome).where(ended)
    return [
        EndedRound(
            row.spec,
            row.phase == Phase.ABANDONED.value,
            row.outcome,
            db.execute(select(sums.document).where(sums.round == row.id)).scalars().all(),
            schema.ledger.charge_of(db, row.id),
        )
        for row in db.execute(query.order_by(rounds.number)).all()
    ]


@dataclass(frozen=True)
class Filed:
    """What is on file of a finished job beside its request, in wire form."""

    population: str
    rounds: Sequence[EndedRound]
    report: bytes
    totals: Sequence[bytes]


def conclude(
    request: StudyRequest, ended: Sequence[EndedRound], population: BitMap, posterior: Posterior
) -> PosteriorReport:
    """Return the report of a job with these rounds and this posterior.

    `population` are the clients who joined. The same arguments give the same report.
    """
    specs = [decode(each.spec, RoundSpec).body for each in ended]
    results = [None if each.is_lost else decode(each.outcome or b"", Result).body for each in ended]
    rounds = list(zip(specs, results, strict=True))
    return PosteriorReport.of(
        request,
        [(spec, result) for spec, result in rounds if result is not None],
        lost=[spec for spec, result in rounds if result is None],
        population=population,
        posterior=posterior,
    )


def finish_job(db: Connection, report: Signed[PosteriorReport]) -> None:
    """Store a job's report, and end the job with it."""
    move_job(db, report.body.job, JobEvent.POSTERIOR_READY)
    row = {"job": report.body.job, "digest": report.digest, "document": report.encode()}
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
        record.population or "",
        find_rounds(db, job),
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
        row = {"job": job, "digest": certificate.digest, "document": pack(certificate.encode())}
        db.execute(schema.certificates.insert().values(row | {"logged": False}))


def unlogged_jobs(db: Connection) -> Sequence[str]:
    """Return the jobs whose certificates lack the proof that the log has them."""
    columns = schema.certificates.c
    return db.execute(select(columns.job).where(~columns.logged)).scalars().all()


def keep_log_proof(db: Connection, job: str, certificate: bytes) -> None:
    """Put the certificate with its proof, compressed, in the place of the one without."""
    table = schema.certificates
    values = {"document": certificate, "logged": True}
    db.execute(table.update().where(table.c.job == job).values(**values))


def find_report(db: Connection, job: str) -> tuple[str, bytes] | None:
    """Return the digest and the wire form of a job's report, if there is one."""
    columns = schema.reports.c
    row = db.execute(select(columns.digest, columns.document).where(columns.job == job)).first()
    return None if row is None else (row.digest, row.document)


def find_certificate(db: Connection, job: str) -> tuple[str, bytes] | None:
    """Return a tag of a job's certificate and the compressed certificate, if there is one.

    The tag is the certificate's digest, with a mark once the proof is there that the log has it.
    """
    columns = schema.certificates.c
    query = select(columns.digest, columns.document, columns.logged).where(columns.job == job)
    row = db.execute(query).first()
    return None if row is None else (row.digest + LOGGED * row.logged, row.document)
