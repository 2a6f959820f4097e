"""Collects every Compute node's signed total of a finished job, then certifies the job.

The result does not wait for the certificate. A node that is away is asked again without end, ever
more rarely: a certificate without its total would not hold. A node signs one total of a job for
ever, with the report's digest: where the report changed since, the job gets no certificate.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

import structlog
from pyroaring import BitMap
from sqlalchemy import Connection, select

from shoal_kit.manifest_book import at_present
from shoal_kit.pace import Pace
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.certificates.checks import version_of
from shoal_protocol.certificates.release_certificate import (
    ReleaseCertificate,
    in_order,
    spanned,
    sums_of,
)
from shoal_protocol.jobs.totals import JobEnd, JobTotal, check_total, nodes_of
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed, decode, sign
from shoal_protocol.wire.errors import NotReady, ProtocolError
from shoal_protocol.wire.service_errors import ChangedReport
from shoal_service.keepers import Keepers
from shoal_service.signed_documents import read_signed
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.study_request import StudyRequest
from shoal_trainer import releases, store
from shoal_trainer.peers import Peers
from shoal_trainer.releases import FiledRounds, parted
from shoal_trainer.resources import Resources
from shoal_trainer.schema import journal, rounds, totals
from shoal_trainer.store import JobRecord

log = structlog.get_logger()

PATIENCE_SECONDS: Final = 5.0  # how long a step waits for nodes that do not answer
_FIRST_PAUSE: Final = timedelta(seconds=1)
_LONGEST_PAUSE: Final = timedelta(minutes=5)


@dataclass(frozen=True)
class Standing:
    """A finished job, the nodes' totals on file, and the nodes that have not signed theirs yet."""

    request: Signed[StudyRequest]
    population: BitMap
    report: Signed[PosteriorReport]
    versions: Sequence[Consortium]  # that its rounds spanned, oldest first
    totals: list[Signed[JobTotal]]
    missing: list[str]


class Certifier:
    """Certifies finished jobs; each job waits only for its own nodes."""

    def __init__(self, resources: Resources, peers: Peers, keepers: Keepers) -> None:
        """Go on from the storage; `keepers` acknowledge a report before nodes hear of it."""
        self._resources = resources
        self._peers, self._keepers = peers, keepers
        self._work = resources.work(partial(Pace, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE))
        self._changed: dict[str, ChangedReport] = {}  # by job, as nodes answered since the start

    async def step(self) -> None:
        """Ask the nodes of every finished job that is due; who does not answer holds up no step.

        Raises:
            StorageUnavailable
        """
        jobs = await self._resources.storage.run(releases.uncertified_jobs)
        begun = [self._work.begin(f"certificate {job}", self._attempt, job) for job in jobs]
        if tasks := [task for task in begun if task is not None]:
            await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)

    async def missing(self, job: str) -> list[str]:
        """Return the nodes whose totals are missing for a finished job.

        Raises:
            ChangedReport: a node has signed its total for another report of this job.
        """
        if job in self._changed:
            raise self._changed[job]
        return (await self._standing(job)).missing

    async def _standing(self, job: str) -> Standing:
        record, report, last, signed = await self._resources.storage.run(_find_standing, job)
        request, spec = decode(record.request, StudyRequest), decode(last, RoundSpec).body
        versions = spanned(request.body.manifest, spec.manifest, self._resources.book.get)
        totals = [decode(each, JobTotal) for each in signed]
        missing = [each for each in nodes_of(versions) if each not in {a.signer for a in totals}]
        filed = decode(report, PosteriorReport)
        return Standing(request, record.clients, filed, versions, totals, missing)

    async def _attempt(self, job: str) -> None:
        """Keep the totals that nodes sign now and that hold, and certify a job if none is missing.

        Raises:
            Unavailable: totals are missing, or too few keepers acknowledge the report.
        """
        standing = await self._standing(job)
        try:
            await self._keepers.acknowledged(standing.report.body.entry)
        except NotReady as error:
            raise Unavailable(str(error)) from error
        answers = await asyncio.gather(*(self._ask(standing, node) for node in standing.missing))
        heard = [
            total
            for node, total in zip(standing.missing, answers, strict=True)
            if total is not None and total.signer == node
        ]
        if standing.missing and not heard:
            raise Unavailable("no node that is missing has signed its total")
        own = self._resources
        rounds = await own.storage.run(releases.ended_rounds, job)
        kept, certificate = await asyncio.to_thread(self._certified, standing, rounds, heard)
        await own.storage.run(releases.keep_totals, job, kept, certificate)
        if certificate is None:
            raise Unavailable("not all nodes have signed their totals")
        log.info("job certified", job=job)
        own.changes.tell(job)

    async def _ask(self, standing: Standing, node: str) -> Signed[JobTotal] | None:
        """Return a node's signed total; None if it does not answer."""
        own = self._resources
        version, party = next(
            (version, party)
            for version in reversed(standing.versions)
            for party in version.manifest.compute_nodes
            if party.name == node
        )
        job = standing.request.digest
        body = JobEnd(manifest=version.digest, job=job, report=standing.report.digest)
        in_charge = own.book.current.manifest.trainer.name == own.name
        key = own.key_in(None if in_charge else version.digest)  # nodes want the one in force
        end = sign(body, own.name, key).encode()
        here = at_present(own.book, party)
        try:
            return read_signed(own.book, await self._peers.total(here, end, version), JobTotal)
        except Unavailable:
            log.debug("a node does not sign its total", job=job, party=node)
        except ProtocolError as error:
            log.error("a node's total is no document", party=node, reason=error.code)
        return None

    def _certified(
        self, standing: Standing, ended: FiledRounds, heard: Sequence[Signed[JobTotal]]
    ) -> tuple[list[Signed[JobTotal]], ReleaseCertificate | None]:
        """Return which totals hold, and the job's certificate unless another one is missing.

        The same documents give the same bytes.
        """
        own, request = self._resources, standing.request
        released, lost = parted(ended)
        rounds = [each.spec.digest for each in in_order(released, lost)]
        kept = []
        for signed in heard:
            try:
                check_total(
                    signed,
                    version_of(
                        {each.digest: each for each in standing.versions}, signed.body.manifest
                    ),
                    job=request.digest,
                    rounds=rounds,
                    report=standing.report.digest,
                    sums=sums_of(released, signed.body.node),
                )
            except ProtocolError as error:
                log.error("a node's total is not true", job=request.digest, reason=str(error))
                if isinstance(error, ChangedReport):
                    self._changed[request.digest] = error
            else:
                kept.append(signed)
        by_node = {each.body.node: each for each in (*standing.totals, *kept)}
        needed = nodes_of(standing.versions)
        if not by_node.keys() >= set(needed):
            return kept, None
        certificate = ReleaseCertificate.of(
            request,
            released,
            lost,
            [by_node[node] for node in needed],
            standing.report,
            population=standing.population,
            version=own.book.get,
        )
        return kept, certificate


def _find_standing(db: Connection, job: str) -> tuple[JobRecord, bytes, bytes, Sequence[bytes]]:
    """Return a job, its report, the spec of its last round, and the nodes' totals."""
    newest = select(rounds.c.spec).where(rounds.c.job == job).order_by(rounds.c.number.desc())
    last = db.execute(newest.limit(1)).scalar_one()
    signed = db.execute(select(totals.c.document).where(totals.c.job == job)).scalars().all()
    report = journal.find(db, releases.REPORT, job) or b""
    return store.find_job(db, job), report, last, signed
