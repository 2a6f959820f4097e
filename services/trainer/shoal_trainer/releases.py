"""Makes and stores the report and the release certificate of a finished job.

Both are made once, of what is on file, so that everybody gets the same bytes. The certificate
follows once every Compute node has signed what it charged of the job.
"""

from collections.abc import Callable, Sequence
from typing import Final

from pyroaring import BitMap
from sqlalchemy import Connection, select

from shoal_protocol.certificates.release_certificate import (
    CertifiedRound,
    LostRound,
    ReleaseCertificate,
    pack,
)
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.journal import UNPLACED
from shoal_protocol.rounds.attestations import Abandonment, PartialSum, Result
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.phases import JobEvent, Phase
from shoal_service.storage.journal import JournalWriter
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.registry import Posterior
from shoal_studies.study_request import StudyRequest
from shoal_trainer import schema
from shoal_trainer.schema import journal, totals
from shoal_trainer.store import (
    Charges,
    filed_rounds,
    kept_charges,
    move_job,
)

REPORT: Final = PosteriorReport.model_fields["kind"].default


def read_round(
    spec: bytes,
    phase: str,
    outcome: bytes | None,
    partial_sums: Sequence[bytes],
) -> CertifiedRound | LostRound:
    """Return a round that has ended as a certificate holds it; the documents are in wire form.

    `outcome` is the aggregator's word; None for a round that clients were never told of.
    `partial_sums` are those that a result rests on, in any order.
    """
    signed = decode(spec, RoundSpec)
    if phase == Phase.ABANDONED:
        word = None if outcome is None else decode(outcome, Abandonment)
        return LostRound(spec=signed, abandonment=word)
    result = decode(outcome or b"", Result)
    sums = {each.body.node: each for each in (decode(s, PartialSum) for s in partial_sums)}
    return CertifiedRound(
        spec=signed,
        result=result,
        partial_sums=tuple(sums[each.node] for each in result.body.partial_sums),
    )


FiledRounds = Sequence[tuple[bytes, str, bytes | None, Sequence[bytes]]]
"""The arguments of `read_round` for each round of a job, in order."""


def parted(ended: FiledRounds) -> tuple[list[CertifiedRound], list[LostRound]]:
    """Return the rounds that released a sum, and those that are lost."""
    rounds = [read_round(*each) for each in ended]
    return (
        [each for each in rounds if isinstance(each, CertifiedRound)],
        [each for each in rounds if isinstance(each, LostRound)],
    )


def conclude(
    request: StudyRequest, ended: FiledRounds, population: BitMap, posterior: Posterior
) -> PosteriorReport:
    """Return the report of a job with these rounds and this posterior.

    `population` are the clients who joined. The same arguments give the same report, whose place in
    the journal is left open.
    """
    released, lost = parted(ended)
    return PosteriorReport.of(
        request, released, lost, population=population, posterior=posterior, entry=UNPLACED
    )


def finish_job(
    writer: JournalWriter,
    report: PosteriorReport,
    signing: Callable[[PosteriorReport], Signed[PosteriorReport]],
) -> Charges:
    """Keep a job's report, signed, and end the job with it; return what its rounds were charged."""
    move_job(writer.db, report.job, JobEvent.POSTERIOR_READY)
    attest = lambda entry: signing(report.model_copy(update={"entry": entry}))  # noqa: E731
    writer.append(REPORT, report.job, attest)
    return kept_charges(writer.db, report.job)


def uncertified_jobs(db: Connection) -> Sequence[str]:
    """Return the jobs that are finished and have no certificate."""
    certified = select(schema.certificates.c.job)
    entries = journal.entries.c
    query = select(entries.subject).where(
        entries.kind == REPORT, entries.body.is_not(None), entries.subject.not_in(certified)
    )
    return db.execute(query.order_by(entries.subject)).scalars().all()


def ended_rounds(db: Connection, job: str) -> FiledRounds:
    """Return all that is on file of a job's rounds, which have ended; it may be large."""
    sums = schema.partial_sums.c
    return [
        (
            *(row.spec, row.phase, row.outcome),
            db.execute(select(sums.document).where(sums.round == row.id)).scalars().all(),
        )
        for row in filed_rounds(db, job)
    ]


def keep_totals(
    db: Connection,
    job: str,
    signed: Sequence[Signed[JobTotal]],
    certificate: ReleaseCertificate | None,
) -> None:
    """Store totals of a finished job and, with the last of them, its certificate."""
    for each in signed:
        row = {"job": job, "node": each.body.node, "document": each.encode()}
        db.execute(totals.insert().values(row))
    if certificate is not None:
        packed = pack(certificate.encode())
        db.execute(schema.certificates.insert().values(job=job, document=packed))
