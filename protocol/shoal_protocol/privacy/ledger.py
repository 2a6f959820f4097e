"""Hash-chained ledgers of what rounds cost: entries, chains, anchors.

Trainer, Compute nodes and data holders each keep one. An entry names the one before it by its
digest, so that nothing can be changed, dropped or put in between without changing every digest
that follows. What was cut off the end shows against any later digest that somebody else holds:
every release carries an entry of every Compute node whose partial sum it rests on.
"""

import base64
from collections import Counter
from datetime import datetime
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
    """A charge of a round to some clients, or the return of one.

    A `return` repeats a charge and gives it back: the round released nothing and never will.
    """

    ledger: Name  # whose: the party's name, or `HOLDER`
    number: Place  # its place, without gaps
    previous: Digest
    kind: Literal["charge", "return"]
    round: Digest
    job: Digest
    job_rounds: Place | None  # of the job, charged so far with this one; a data
    # holder, who is charged in batches and by crowds, counts none
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

    def returned(self, *, after: Head, at: datetime) -> "LedgerEntry":
        """Return the entry that gives this charge back."""
        links = {"number": after.number + 1, "previous": after.digest}
        return LedgerEntry(**dict(self) | links | {"kind": "return", "at": at})


class Chain:
    """Follows one ledger from its beginning, entry by entry."""

    def __init__(self) -> None:
        """Begin before the first entry."""
        self.head = EMPTY
        self.ledger: str | None = None  # whose it is, once there is an entry
        self._charged: dict[tuple[str, str], LedgerEntry] = {}  # by round and population
        self._returned: set[tuple[str, str]] = set()
        self._of_job = Counter[str]()

    def rounds_of(self, job: str) -> int:
        """Return how often a job was charged, returned charges included."""
        return self._of_job[job]

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
        if entry.kind == "charge":
            if of in self._charged:
                raise MalformedDocument(f"ledger entry {number} charges the same again")
            if entry.job_rounds not in (None, self._of_job[entry.job] + 1):
                raise MalformedDocument(f"ledger entry {number} miscounts the rounds of its job")
            self._charged[of] = entry
            self._of_job[entry.job] += 1
        else:
            charged = self._charged.get(of)
            if charged is None or of in self._returned:
                raise MalformedDocument(f"ledger entry {number} gives back what is not charged")
            if entry != charged.returned(after=self.head, at=entry.at):
                raise MalformedDocument(f"ledger entry {number} gives back another charge")
            self._returned.add(of)
        self.ledger, self.head = entry.ledger, entry.head


def counted(entries: int) -> str:
    """Say how many entries these are."""
    return f"{entries:,} entry" if entries == 1 else f"{entries:,} entries"


def population_digest(clients: str) -> str:
    """Return the digest of a set of clients, encoded as `encode_clients` does."""
    return sha256("ledger-population", base64.b64decode(clients))
