"""Checks another party's ledger: its chain, the entries that releases carry, and charges.

What charges a round is computed here for those who keep a ledger, too.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from shoal_protocol.privacy.ledger import Chain, Head, LedgerEntry, counted, population_digest
from shoal_protocol.wire.errors import MalformedDocument
from shoal_protocol.wire.service_errors import WrongCharge


def charge_of(
    spec: Any,
    *,
    ledger: str,
    after: Head,
    at: datetime,
    job_rounds: int | None,
) -> LedgerEntry:
    """Return the entry that charges a round to its population.

    `spec` has a round's digest, job, number, population, its size, mu and epsilon.

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
        population=population_digest(spec.population),
        clients=spec.population_size,
        mu=spec.mu,
        epsilon=spec.epsilon,
        at=at,
    )


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


def check_anchors(entries: Sequence[LedgerEntry], anchors: Iterable[LedgerEntry]) -> None:
    """Check that a verified ledger still holds the entries that another party kept.

    Raises:
        MalformedDocument: it was cut off, or set back and written anew.
    """
    for anchor in anchors:
        if anchor.number > len(entries):
            raise MalformedDocument(
                f"the ledger ends at entry {len(entries)}, but entry {anchor.number} is in a "
                "release: the ledger was cut off or set back"
            )
        if entries[anchor.number - 1] != anchor:
            raise MalformedDocument(
                f"ledger entry {anchor.number} is another than the one in a release: the ledger "
                "was set back and written anew"
            )


def contradictions(entries: Iterable[LedgerEntry]) -> Iterator[str]:
    """Return which of these entries, of any ledgers, cannot be of one and the same chain.

    Honest parties have none; a ledger that was restored from a backup and continued has one as
    soon as it is used for a release again.
    """
    known: dict[tuple[str, int], LedgerEntry] = {}
    for entry in entries:
        found = known.setdefault((entry.ledger, entry.number), entry)
        if found != entry:
            yield f"{entry.ledger} shows two different entries with the number {entry.number}"
    for (ledger, number), entry in known.items():
        before = known.get((ledger, number - 1))
        if before is not None and entry.previous != before.digest:
            yield f"{ledger}: entry {number} does not name the one before it"


def check_charge(entry: LedgerEntry, spec: Any, *, node: str) -> None:
    """Check the entry by which `node` says that it charged a round before it released its sum.

    Raises:
        WrongCharge: it is not this node's charge of this round to its whole population, or counts
            more rounds of the job than there can have been.
    """
    links, count = Head(entry.number - 1, entry.previous), entry.job_rounds
    expected = charge_of(spec, ledger=node, after=links, at=entry.at, job_rounds=count)
    if entry != expected or count is None or count > spec.number + 1:
        raise WrongCharge
