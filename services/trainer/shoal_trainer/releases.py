"""What a job that is done hands out: its report and its release certificate; reads no peer.

Both are made once, of what is on file, and kept: whoever asks gets the same bytes for ever.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nacl.signing import SigningKey
from pyroaring import BitMap
from sqlalchemy import Connection, Table, select

from shoal_protocol.attestations import Abandonment, PartialSum, Result
from shoal_protocol.certificates import CertifiedRound, LostRound, ReleaseCertificate
from shoal_protocol.documents import Signed, decode, sign
from shoal_protocol.jobs import JobRequest, PosteriorReport
from shoal_protocol.ledger import LedgerEntry
from shoal_protocol.manifest import Parties
from shoal_protocol.phases import JobEvent, Phase
from shoal_protocol.posteriors import Posterior
from shoal_protocol.rounds import RoundSpec
from shoal_trainer import schema
from shoal_trainer.store import move_job


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


def conclude(
    request: bytes,
    releases: Sequence[Release],
    losses: Sequence[Loss],
    *,
    population: BitMap,
    posterior: Posterior,
    version: Callable[[str], Parties],
    trainer: str,
    key: SigningKey,
) -> tuple[Signed[PosteriorReport], Signed[ReleaseCertificate]]:
    """Return the report and the certificate of a job, given in wire form, with this posterior.

    `population` are the clients who joined; `version` knows manifests by digest. The same arguments
    give the same bytes.
    """
    asked, rounds = decode(request, JobRequest), [_certified(each) for each in releases]
    lost = [_lost(each) for each in losses]
    report = PosteriorReport.of(
        asked.body,
        [(each.spec.body, each.result.body) for each in rounds],
        lost=[each.spec.body for each in lost],
        population=population,
        posterior=posterior,
    )
    signed = sign(report, trainer, key)
    certificate = ReleaseCertificate.of(
        asked, rounds, lost, signed, population=population, version=version
    )
    return signed, sign(certificate, trainer, key)


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


def finish_job(
    db: Connection, report: Signed[PosteriorReport], certificate: Signed[ReleaseCertificate]
) -> None:
    """Store a job's report and certificate, and end the job with them."""
    move_job(db, report.body.job, JobEvent.POSTERIOR_READY)
    for table, signed in ((schema.reports, report), (schema.certificates, certificate)):
        row = {"job": report.body.job, "digest": signed.digest, "document": signed.encode()}
        db.execute(table.insert().values(row))


def find_report(db: Connection, job: str) -> tuple[str, bytes] | None:
    """Return the digest and the wire form of a job's report, if there is one."""
    return _find(db, schema.reports, job)


def find_certificate(db: Connection, job: str) -> tuple[str, bytes] | None:
    """Return the digest and the wire form of a job's certificate, if there is one."""
    return _find(db, schema.certificates, job)


def _find(db: Connection, table: Table, job: str) -> tuple[str, bytes] | None:
    columns = table.c
    row = db.execute(select(columns.digest, columns.document).where(columns.job == job)).first()
    return None if row is None else (row.digest, row.document)
