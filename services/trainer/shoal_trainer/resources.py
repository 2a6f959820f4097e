"""The resources that all parts of the trainer share."""

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import structlog
from prometheus_client import Counter
from pyroaring import BitMap

from shoal_hosting import service
from shoal_protocol.privacy.accounting import Balances, Cost
from shoal_trainer.store import Ledger, kept_charges

log = structlog.get_logger()


@dataclass(frozen=True, eq=False)
class Resources(service.Resources):
    """The resources of every service, and clients' charges and commitments."""

    committed: Balances = field(default_factory=Balances)
    """Rounds charged so far, and the rest of what open jobs may cost. A join is refused on it, so
    that a job which has begun never runs out of budget."""

    opened: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """The newest round of running jobs that every service accepted: its number and signed spec."""

    heard: dict[int, datetime] = field(default_factory=dict)
    """When data holders' agents asked for jobs last, by holder, since this process began."""

    async def end_job(
        self, job: str, end: str, clients: BitMap, allowed: Cost, **facts: str
    ) -> None:
        """Count the end of a job, which is on file, and tell everyone who waits for it.

        What it reserved of its clients' budgets, `allowed` for each, and did not spend, is freed.
        """
        self.ends.labels(end).inc()
        log.info(f"job {end}", job=job, **facts)
        spent = await self.storage.run(kept_charges, job)
        self.committed.take_back(clients, allowed)
        for charged, cost in spent:
            self.committed.add(charged, cost)
        self.opened.pop(job, None)
        self.changes.tell(job)

    @cached_property
    def ends(self) -> Counter:
        """Return the metric of jobs by their end."""
        name, what = "shoal_trainer_jobs_ended", "Jobs by their end"
        return Counter(name, what, ["end"], registry=self.registry)

    @cached_property
    def ledger(self) -> Ledger:
        """Return the ledger, not read yet."""
        return Ledger(self.name)
