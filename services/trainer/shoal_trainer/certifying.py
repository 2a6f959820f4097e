"""Collects every Compute node's signed total of a finished job, then certifies the job.

The result does not wait for the certificate. A node that is away is asked again without end, ever
more rarely: a certificate without its total would not hold.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Final

import structlog
from sqlalchemy import Connection, select

from shoal_kit.manifest_book import at_present, newest_with
from shoal_kit.pace import Pace
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.certificates.checks import version_of
from shoal_protocol.certificates.release_certificate import (
    CertifiedRound,
    LostRound,
    ReleaseCertificate,
    counted,
    pack,
    read_certificate,
    spanned,
)
from shoal_protocol.jobs.totals import JobEnd, JobTotal, check_total, nodes_of
from shoal_protocol.log.entries import LogRequest
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed, decode, sign
from shoal_protocol.wire.errors import ProtocolError
from shoal_service.work import Work
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.study_request import StudyRequest
from shoal_trainer import releases, store
from shoal_trainer.peers import Peers
from shoal_trainer.releases import Filed, read_round
from shoal_trainer.resources import Resources
from shoal_trainer.schema import rounds, totals

log = structlog.get_logger()

PATIENCE_SECONDS: Final = 5.0  # how long a step waits for nodes that do not answer
_FIRST_PAUSE: Final = timedelta(seconds=1)
_LONGEST_PAUSE: Final = timedelta(minutes=5)


@dataclass(frozen=True)
class Unsigned:
    """A finished job, and the nodes that have not signed their totals yet."""

    request: Signed[StudyRequest]
    versions: Sequence[Consortium]  # that its rounds spanned, oldest first
    missing: list[str]


class Certifier:
    """Certifies finished jobs; each job waits only for its own nodes."""

    def __init__(self, resources: Resources, peers: Peers) -> None:
        """Go on from what the storage holds."""
        self._resources = resources
        self._peers = peers
        self._work = Work(
            resources.clock, partial(Pace, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        )

    async def step(self) -> None:
        """Ask the nodes of every finished job that is due; who does not answer holds up no step.

        Raises:
            StorageUnavailable
        """
        jobs = await self._resources.storage.run(releases.uncertified_jobs)
        begun = [self._work.begin(f"certificate {job}", self._attempt, job) for job in jobs]
        for job in await self._resources.storage.run(releases.unlogged_jobs):
            self._work.begin(f"log {job}", self._log, job)
        if tasks := [task for task in begun if task is not None]:
            await asyncio.wait(tasks, timeout=PATIENCE_SECONDS)

    async def close(self) -> None:
        """Cancel open requests."""
        await self._work.close()

    async def unsigned(self, job: str) -> Unsigned:
        """Return the nodes whose totals are missing for a finished job."""
        request, last, signers = await self._resources.storage.run(_standing, job)
        asked, spec = decode(request, StudyRequest), decode(last, RoundSpec).body
        versions = spanned(asked.body.manifest, spec.manifest, self._resources.book.get)
        return Unsigned(
            asked, versions, [each for each in nodes_of(versions) if each not in signers]
        )

    async def _attempt(self, job: str) -> None:
        """Keep the totals that nodes sign now and that hold, and certify a job if none is missing.

        Raises:
            Unavailable: totals are missing.
        """
        unsigned = await self.unsigned(job)
        answers = await asyncio.gather(*(self._ask(unsigned, node) for node in unsigned.missing))
        heard = [
            total
            for node, total in zip(unsigned.missing, answers, strict=True)
            if total is not None and total.signer == node
        ]
        if unsigned.missing and not heard:
            raise Unavailable("no node that is missing has signed its total")
        own = self._resources
        filed = await own.storage.run(releases.find_finished, job)
        kept, certificate = await asyncio.to_thread(self._certified, unsigned, filed, heard)
        await own.storage.run(releases.keep_totals, job, kept, certificate)
        if certificate is None:
            raise Unavailable("not all nodes have signed their totals")
        log.info("job certified", job=job)
        own.changes.tell(job)
        own.wake.set()  # it can be logged

    async def _log(self, job: str) -> None:
        """Have a certificate logged, and put the proof beside it; nothing waits for this.

        Raises:
            Unavailable: there is no proof yet.
        """
        own, current = self._resources, self._resources.book.current
        found = await own.storage.run(releases.find_certificate, job)
        signed = await asyncio.to_thread(read_certificate, found.document if found else b"")
        entry = signed.body.log_entry
        listed = newest_with(own.book, own.name)  # another may be the trainer now
        request = own.sign(LogRequest(manifest=listed.digest, entry=entry)).encode()
        proof = await self._peers.logged(request, listed, aggregator=current.manifest.aggregator)
        proof.check(entry, current)
        proved = replace(signed, countersignatures=proof.encode().decode())
        packed = await asyncio.to_thread(lambda: pack(proved.encode()))
        await own.storage.run(releases.keep_log_proof, job, packed)
        own.changes.tell(job)

    async def _ask(self, unsigned: Unsigned, node: str) -> Signed[JobTotal] | None:
        """Return a node's signed total; None if it does not answer."""
        own = self._resources
        version, party = next(
            (version, party)
            for version in reversed(unsigned.versions)
            for party in version.manifest.compute_nodes
            if party.name == node
        )
        body = JobEnd(manifest=version.digest, job=unsigned.request.digest)
        in_charge = own.book.current.manifest.trainer.name == own.name
        key = own.key_in(None if in_charge else version.digest)  # nodes want the one in force
        end = sign(body, own.name, key).encode()
        here = at_present(own.book, party)
        try:
            return own.book.decode(await self._peers.total(here, end, version), JobTotal)
        except Unavailable:
            log.debug("a node does not sign its total", job=unsigned.request.digest, party=node)
        except ProtocolError as error:
            log.error("a node's total is no document", party=node, reason=error.code)
        return None

    def _certified(
        self, unsigned: Unsigned, filed: Filed, heard: Sequence[Signed[JobTotal]]
    ) -> tuple[list[Signed[JobTotal]], Signed[ReleaseCertificate] | None]:
        """Return which totals hold, and the job's certificate unless another one is missing.

        The same documents give the same bytes.
        """
        own, request = self._resources, unsigned.request
        rounds = [read_round(*each) for each in filed.rounds]
        released = [each for each in rounds if isinstance(each, CertifiedRound)]
        kept = []
        for signed in heard:
            try:
                check_total(
                    signed,
                    version_of(
                        {each.digest: each for each in unsigned.versions}, signed.body.manifest
                    ),
                    job=request.digest,
                    rounds=[each.spec.digest for each in rounds],
                    counted=counted(released, signed.body.node),
                )
            except ProtocolError as error:
                log.error("a node's total is not true", job=request.digest, reason=str(error))
            else:
                kept.append(signed)
        totals = [*(decode(each, JobTotal) for each in filed.totals), *kept]
        by_node = {each.body.node: each for each in totals}
        needed = nodes_of(unsigned.versions)
        if not by_node.keys() >= set(needed):
            return kept, None
        certificate = ReleaseCertificate.of(
            request,
            released,
            [each for each in rounds if isinstance(each, LostRound)],
            [by_node[node] for node in needed],
            decode(filed.report, PosteriorReport),
            population=filed.population,
            version=own.book.get,
        )
        return kept, own.sign(certificate)


def _standing(db: Connection, job: str) -> tuple[bytes, bytes, frozenset[str]]:
    """Return a job's request, the spec of its last round, and who has signed a total."""
    newest = select(rounds.c.spec).where(rounds.c.job == job).order_by(rounds.c.number.desc())
    last = db.execute(newest.limit(1)).scalar_one()
    signed = db.execute(select(totals.c.node).where(totals.c.job == job))
    return store.find_job(db, job).request, last, frozenset(signed.scalars())
