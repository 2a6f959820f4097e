"""The resources that all parts of the trainer share."""

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TypeVar

import structlog
from prometheus_client import Counter
from pyroaring import BitMap

from shoal_protocol.jobs.charges_asked import check_age
from shoal_protocol.jobs.membership import HolderQuery
from shoal_protocol.keeping import Loss
from shoal_protocol.privacy.accounting import Balances, Cost
from shoal_protocol.wire.documents import Role
from shoal_service import service
from shoal_service.storage.charges import Ledger
from shoal_service.storage.journal import Journal
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.study_request import JobsQuery
from shoal_trainer import schema
from shoal_trainer.store import Charges

log = structlog.get_logger()
QueryT = TypeVar("QueryT", bound=HolderQuery | JobsQuery)


@dataclass(frozen=True, eq=False)
class Resources(service.Resources):
    """The resources of every service, and clients' charges and commitments."""

    committed: Balances = field(default_factory=Balances)
    """Rounds charged so far, and the rest of what open jobs may cost. A join is refused on it, so
    that a job which has begun never runs out of budget."""

    reserved: dict[str, BitMap] = field(default_factory=dict)
    """By open job: the clients for whom what it may cost is in `committed`."""

    opened: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """The newest round of running jobs that every service accepted: its number and signed spec."""

    heard: dict[int, datetime] = field(default_factory=dict)
    """When data holders' agents asked for jobs last, by holder, since this process began."""

    def reserve(self, job: str, clients: BitMap, allowed: Cost) -> None:
        """Reserve `allowed`, what a job may cost, of the budgets of exactly these clients."""
        before = self.reserved.get(job, BitMap())
        self.committed.add(clients - before, allowed)
        self.committed.take_back(before - clients, allowed)
        self.reserved[job] = clients

    def end_job(self, job: str, end: str, allowed: Cost, spent: Charges, **facts: str) -> None:
        """Count the end of a job, which is on file, and tell everyone who waits for it.

        What it reserved of its clients' budgets, `allowed` for each, is freed except `spent`. Once
        the end is counted, a further call changes nothing.
        """
        if job not in self.reserved:
            return
        self.ends.labels(end).inc()
        log.info(f"job {end}", job=job, **facts)
        self.committed.take_back(self.reserved.pop(job), allowed)
        for charged, cost in spent:
            self.committed.add(charged, cost)
        self.opened.pop(job, None)
        self.changes.tell(job)
        self.wake.set()  # a finished job can be certified

    async def query(self, encoded: bytes, *kinds: type[QueryT]) -> QueryT:
        """Return a query of one of `kinds`, signed just now by who may send it.

        A data holder may be behind by versions of the manifest, and hears of the newest by a job.

        Raises:
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature
            UnknownManifest, UnknownHolder, RevokedHolder: of a data holder's.
            WrongManifest: of an analyst's.
            StaleQuery: it was signed too long ago, or by a clock that is ahead.
        """
        signed, book = await self.read(encoded, *kinds), self.book
        if signed.body.signed_by is Role.HOLDER:
            book.get(signed.body.manifest).verify_in_force(signed, book.current)
        else:
            book.in_force(signed.body.manifest).verify(signed)
        check_age(signed.body.at, self.clock())
        if isinstance(signed.body, HolderQuery):
            self.heard[signed.body.holder] = self.clock()
        return signed.body

    @cached_property
    def ends(self) -> Counter:
        """Return the metric of jobs by their end."""
        name, what = "shoal_trainer_jobs_ended", "Jobs by their end"
        return Counter(name, what, ["end"], registry=self.registry)

    @cached_property
    def journal(self) -> Journal:
        """Return the journal, checked.

        Raises:
            LedgerBroken: it is not whole.
        """
        return Journal(schema.journal, self.storage, PosteriorReport, Loss)

    @cached_property
    def ledger(self) -> Ledger:
        """Return the ledger, not read yet."""
        return Ledger(schema.charges)
