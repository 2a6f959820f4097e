"""Computes the ledger entry that charges a round, for those who keep a ledger or check one."""

from datetime import datetime
from typing import Protocol

from pyroaring import BitMap

from shoal_protocol.privacy.ledger import Head, LedgerEntry, population_digest
from shoal_protocol.wire.encoding import encode_clients


class Charged(Protocol):
    """The parts of a round's spec that a ledger charges by."""

    @property
    def digest(self) -> str: ...
    @property
    def job(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def population(self) -> str: ...
    @property
    def population_size(self) -> int: ...
    @property
    def mu(self) -> float: ...
    @property
    def epsilon(self) -> float | None: ...


def charge_of(
    spec: Charged,
    *,
    ledger: str,
    after: Head,
    at: datetime,
    job_rounds: int | None,
    clients: BitMap | None = None,
) -> LedgerEntry:
    """Return the entry that charges a round to its population, or to `clients` of it.

    It is the job's `job_rounds`-th that the ledger charges; None where it counts none.
    """
    return LedgerEntry(
        ledger=ledger,
        number=after.number + 1,
        previous=after.digest,
        kind="charge",
        round=spec.digest,
        job=spec.job,
        job_rounds=job_rounds,
        population=population_digest(
            spec.population if clients is None else encode_clients(clients)
        ),
        clients=spec.population_size if clients is None else len(clients),
        mu=spec.mu,
        epsilon=spec.epsilon,
        at=at,
    )
