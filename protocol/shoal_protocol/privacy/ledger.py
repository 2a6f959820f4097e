"""A data holder's hash-chained ledger of what rounds cost its clients.

An entry names the one before it by its digest, so that nothing can be changed, dropped or put in
between without changing every digest that follows.
"""

import base64
from collections.abc import Iterable
from typing import Annotated, Final, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import (
    Clients,
    Digest,
    Loss,
    Name,
    Place,
    Timestamp,
    canonical_json,
    sha256,
)
from shoal_protocol.wire.errors import MalformedDocument

GENESIS: Final = "0" * 64  # what the first entry names as the one before it
HOLDER: Final = "holder"  # the ledger's name at a data holder, which has none in the manifest


class Head(NamedTuple):
    """The last entry of a ledger, or none yet."""

    number: int
    digest: str


EMPTY: Final = Head(0, GENESIS)


class LedgerEntry(Model):
    """A charge of a round to some clients."""

    ledger: Name  # `HOLDER`
    number: Place  # its place, without gaps
    previous: Digest
    kind: Literal["charge"]
    round: Digest
    job: Digest
    job_rounds: None  # a data holder, who is charged in batches and by crowds, counts none
    population: Digest  # `population_digest` of those who are charged
    clients: Annotated[Clients, Field(ge=1)]  # how many they are
    mu: Loss  # for each of them
    epsilon: Loss | None  # None is infinite; 0, as mu, if it was paid before
    at: Timestamp

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if (self.number == 1) != (self.previous == GENESIS):
            raise ValueError("entry 1 of a ledger, and no other, names none before it")
        if (self.mu == 0.0) != (self.epsilon == 0.0):
            raise ValueError("what costs nothing costs nothing in either currency")
        return self

    @property
    def digest(self) -> str:
        """Return the SHA-256 digest that the next entry names, in hex."""
        return sha256("ledger-entry", canonical_json(self.model_dump(mode="json")))

    @property
    def cost(self) -> Cost:
        """Return what each of the clients was charged."""
        return Cost.stated(self.mu, self.epsilon)

    @property
    def head(self) -> Head:
        """Return this entry as the last one."""
        return Head(self.number, self.digest)


class Chain:
    """Follows one ledger from its beginning, entry by entry."""

    def __init__(self) -> None:
        """Begin before the first entry."""
        self.head = EMPTY
        self.ledger: str | None = None  # whose it is, once there is an entry
        self._charged: set[tuple[str, str]] = set()  # rounds and populations

    def follow(self, entry: LedgerEntry) -> None:
        """Take the next entry.

        Raises:
            MalformedDocument: it does not follow; nothing was taken.
        """
        number = self.head.number + 1
        if entry.number != number:
            raise MalformedDocument(f"ledger entry {number} is missing: {entry.number} is next")
        if entry.previous != self.head.digest:
            raise MalformedDocument(f"ledger entry {number} does not name the one before it")
        if self.ledger not in (None, entry.ledger):
            raise MalformedDocument(f"ledger entry {number} is of another ledger")
        of = (entry.round, entry.population)
        if of in self._charged:
            raise MalformedDocument(f"ledger entry {number} charges the same again")
        self._charged.add(of)
        self.ledger, self.head = entry.ledger, entry.head


def counted(entries: int) -> str:
    """Say how many entries these are."""
    return f"{entries:,} entry" if entries == 1 else f"{entries:,} entries"


def population_digest(clients: str) -> str:
    """Return the digest of a set of clients, encoded as `encode_clients` does."""
    return sha256("ledger-population", base64.b64decode(clients))


def verify_chain(entries: Iterable[LedgerEntry]) -> Chain:
    """Check a whole ledger, from its first entry on.

    Raises:
        MalformedDocument: an entry does not follow from those before it; it is named by its number.
    """
    chain = Chain()
    for entry in entries:
        chain.follow(entry)
    return chain


def in_words(ledger: str, head: Head) -> str:
    """Return length and last entry of a verified ledger, which has an entry, in words."""
    return (
        f"The ledger of {ledger} is one unbroken chain of {counted(head.number)}; the last one's "
        f"digest is {head.digest}."
    )
