"""What every part of the trainer works with; it knows where things are, and does nothing."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Final

from nacl.signing import SigningKey
from prometheus_client import CollectorRegistry

from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.shared_manifests import SharedManifests
from shoal_hosting.storage import StorageThread
from shoal_hosting.waiting import Changes
from shoal_protocol.balances import Balances
from shoal_trainer.ledger import Ledger

# the keys of `changes` for who waits for jobs, or crowd jobs; all others are digests of one
JOB_LIST: Final = "jobs"
CROWD_LIST: Final = "crowds"


@dataclass(frozen=True)
class Resources:
    """One trainer's identity, trust, storage, clock and balances."""

    name: str
    signing_key: SigningKey = field(repr=False)
    book: ManifestBook
    storage: StorageThread
    clock: Callable[[], datetime]
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    committed: Balances = field(default_factory=Balances)
    """Rounds charged so far, and the rest of what open jobs may cost. A join is refused on it, so
    that a job which has begun never runs out of budget."""
    changes: Changes = field(default_factory=Changes)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    manifests: SharedManifests | None = None
    """Where processes over one database hand each other manifests; None: there are no others."""

    @cached_property
    def ledger(self) -> Ledger:
        """Return the ledger, of which nothing is read yet."""
        return Ledger(self.name)
