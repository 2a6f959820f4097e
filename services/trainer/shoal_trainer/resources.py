"""The resources that all parts of the trainer share."""

from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from shoal_hosting import service
from shoal_protocol.privacy.accounting import Balances
from shoal_trainer.store import Ledger


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

    def job_ended(self, job: str) -> None:
        """Tell everyone who waits for a job that it has ended."""
        self.opened.pop(job, None)
        self.changes.tell(job)

    @cached_property
    def ledger(self) -> Ledger:
        """Return the ledger, not read yet."""
        return Ledger(self.name)
