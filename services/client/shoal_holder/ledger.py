"""The data holder's hash-chained ledger in its state file.

One entry covers the slots of an answer. Each contribution to a crowd has its own. The file's
triggers let the table only grow; the chain shows changes even where the triggers were removed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from pyroaring import BitMap

from shoal_holder.state_file import StateFile
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.ledger import HOLDER, Chain, LedgerEntry, population_digest
from shoal_protocol.wire.encoding import (
    canonical_json,
    decode_clients,
    encode_clients,
    format_time,
    sha256,
)
from shoal_protocol.wire.errors import LedgerBroken, MalformedDocument


@dataclass(frozen=True)
class ChargedElsewhere:
    """A round that nodes charged these clients, to be looked up in this ledger."""

    round_id: str
    job: str
    number: int
    cost: Cost
    clients: BitMap


def not_charged(file: StateFile, rounds: Iterable[ChargedElsewhere]) -> list[ChargedElsewhere]:
    """Return those of `rounds` that are not in this ledger, with the clients who lack them."""
    lacking = [(each, each.clients - charged(file, each.job, each.number)) for each in rounds]
    return [replace(each, clients=clients) for each, clients in lacking if clients]


def charged(file: StateFile, job: str, number: int | None = None) -> BitMap:
    """Return the clients that were charged for a job, or for the round of this number in it."""
    rows = file.rows(
        "SELECT population FROM ledger WHERE job = ?1 AND place = ifnull(?2, place)", job, number
    )
    return BitMap().union(*(decode_clients(population) for (population,) in rows))


def adopt(file: StateFile, forgotten: ChargedElsewhere, now: datetime) -> None:
    """Charge a round that is not in this ledger, in the caller's transaction.

    A node that lies may claim a round that is on file for another job or number, or claim one
    twice: such a claim is charged under an id of its own.
    """
    round_id, job, number = forgotten.round_id, forgotten.job, forgotten.number
    is_another = file.one(
        "SELECT 1 FROM (SELECT round, job, number FROM rounds UNION ALL SELECT * FROM adopted)"
        " WHERE round = ? AND (job, number) <> (?, ?)",
        *(round_id, job, number),
    )
    if is_another:
        claim = {"job": job, "number": number, "round": round_id}
        round_id = sha256("claimed", canonical_json(claim))
    file.database.execute(
        "INSERT INTO adopted SELECT ?1, ?2, ?3"
        " WHERE NOT EXISTS (SELECT 1 FROM rounds WHERE (round, job, number) = (?1, ?2, ?3))"
        " AND NOT EXISTS (SELECT 1 FROM adopted WHERE round = ?1)",
        (round_id, job, number),
    )
    append(file, round_id, job, number, forgotten.cost, now, forgotten.clients)


def contribution_id(submission: str) -> str:
    """Return the id under which a contribution is charged, which the submission's digest fixes."""
    return sha256("contribution", submission.encode())


def append(
    file: StateFile,
    charged_for: str,
    job: str,
    number: int | None,
    cost: Cost,
    now: datetime,
    clients: BitMap,
) -> None:
    """Append an entry that charges clients; `charged_for` names a round or a contribution.

    `number` is the round's in its job, and None of a contribution.

    Raises:
        ValueError: one of them was charged for it, or for this number of the job, already.
    """
    again = file.rows(
        "SELECT population FROM ledger WHERE round = ? UNION ALL"
        " SELECT population FROM ledger WHERE (job, place) = (?, ?)",
        *(charged_for, job, number),
    )
    if any(decode_clients(population) & clients for (population,) in again):
        raise ValueError("a client cannot be charged twice for the same")
    head, population = file.head(), encode_clients(clients)
    entry = LedgerEntry(
        ledger=HOLDER,
        number=head.number + 1,
        previous=head.digest,
        kind="charge",
        round=charged_for,
        job=job,
        job_rounds=None,
        population=population_digest(population),
        clients=len(clients),
        mu=cost.mu,
        epsilon=cost.stated_epsilon,
        at=now,
    )
    digest = entry.digest
    file.database.execute(
        "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(entry.number, entry.previous, entry.kind, charged_for, job, number, population),
            *(entry.clients, cost.mu, entry.epsilon, format_time(entry.at), digest),
        ),
    )
    file.database.execute("UPDATE ledger_head SET number = ?, digest = ?", (entry.number, digest))


def entries(file: StateFile, *, after: int, count: int) -> list[LedgerEntry]:
    """Return up to `count` entries that follow entry `after`.

    Raises:
        LedgerBroken: a row is not one that this program wrote.
    """
    return [entry for entry, _ in _read(file, after, count)]


def verify(file: StateFile) -> None:
    """Check the whole ledger, to its last byte, and that it charges every answer on file.

    Raises:
        LedgerBroken: something was changed, removed or added by hand.
    """
    chain = Chain()
    for entry, place in _read(file, 0, -1):
        if entry.ledger != HOLDER or entry.kind != "charge":
            raise LedgerBroken(f"ledger entry {entry.number} is no data holder's")
        try:
            chain.follow(entry)
        except MalformedDocument as error:
            raise LedgerBroken(str(error)) from error
        if place != _place(file, entry):
            raise LedgerBroken(f"the round of ledger entry {entry.number} was changed")
    if chain.head != file.head():
        raise LedgerBroken("the ledger does not end where it did: entries were removed")
    # rows of the outbox stay when their envelopes are erased
    unpaid = file.one(
        "SELECT 1 FROM outbox JOIN rounds ON (kind, about) = ('envelope', round) WHERE NOT EXISTS ("
        " SELECT 1 FROM ledger WHERE (ledger.job, place) = (rounds.job, rounds.number))"
        " UNION ALL SELECT 1 FROM contributions WHERE NOT EXISTS ("
        " SELECT 1 FROM ledger WHERE ledger.round = contribution) LIMIT 1"
    )
    if unpaid is not None:
        raise LedgerBroken("an answer on file is not in the ledger: entries were removed")


def _place(file: StateFile, entry: LedgerEntry) -> int | None:
    """Return the number in its job of the round that an entry charges, None of a contribution.

    Raises:
        LedgerBroken: it is not on file as it was charged.
    """
    # a node may have claimed, for another job, a round that was on file only later
    round_of = file.one(
        "SELECT number FROM rounds WHERE (round, job) = (?1, ?2)"
        " UNION ALL SELECT number FROM adopted WHERE (round, job) = (?1, ?2)",
        *(entry.round, entry.job),
    )
    if round_of is not None:
        return int(round_of[0])
    found = file.one(
        "SELECT job, client, submission FROM contributions WHERE contribution = ?",
        entry.round,
    )
    if found is None or found[0] != entry.job:
        what = "a round or contribution that is not on file"
        raise LedgerBroken(f"ledger entry {entry.number} charges {what}")
    _, client, submission = found
    if (entry.round, entry.population) != (
        contribution_id(submission),
        population_digest(encode_clients(BitMap([client]))),
    ):
        raise LedgerBroken(f"the contribution of ledger entry {entry.number} was changed")
    return None


def _read(file: StateFile, after: int, count: int) -> Iterator[tuple[LedgerEntry, int | None]]:
    """Yield up to `count` entries, all if that is negative, and the places of their rounds."""
    rows = file.database.execute(
        "SELECT number, previous, kind, round, job, place, population, clients, mu, epsilon, at,"
        " digest FROM ledger WHERE number > ? ORDER BY number LIMIT ?",
        (after, count),
    )
    for row in rows:
        number, previous, kind, round_id, job, place, population, clients, mu, epsilon = row[:10]
        try:
            entry = LedgerEntry(
                ledger=HOLDER,
                number=number,
                previous=previous,
                kind=kind,
                round=round_id,
                job=job,
                job_rounds=None,
                population=population_digest(population),
                clients=len(decode_clients(population)),
                mu=mu,
                epsilon=epsilon,
                at=row[10],
            )
            if (entry.digest, entry.clients) != (row[11], clients):
                raise ValueError("the row is not the entry of which it has the digest")
        except (ValueError, TypeError, OverflowError, MalformedDocument):
            what = f"ledger entry {number} is not one that this program wrote"
            raise LedgerBroken(what) from None
        yield entry, place
    rows.close()
