"""The data holder's hash-chained ledger in its state file.

One entry covers the slots of an answer; their own rows refer to it. Each
contribution to a crowd has its own. The file's triggers let both tables only grow; the chain shows
changes even where the triggers were removed.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from pyroaring import BitMap

from shoal_holder.state_file import StateFile
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.ledger import HOLDER, Chain, Head, LedgerEntry, population_digest
from shoal_protocol.wire.encoding import canonical_json, encode_clients, format_time, sha256
from shoal_protocol.wire.errors import LedgerBroken, MalformedDocument


@dataclass(frozen=True)
class ClientCharge:
    """One client's charge for one round."""

    entry: int
    job: str
    number: int
    round_id: str
    client: int
    mu: float
    epsilon: float | None  # None is infinite
    at: str


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
    found = []
    for each in rounds:
        rows = file.rows(
            "SELECT client FROM charged WHERE (job, number) = (?, ?)"
            " AND client IN (SELECT value FROM json_each(?))",
            each.job,
            each.number,
            json.dumps(list(each.clients)),
        )
        if missing := each.clients - BitMap(client for (client,) in rows):
            found.append(replace(each, clients=missing))
    return found


def adopt(file: StateFile, forgotten: ChargedElsewhere, now: datetime) -> None:
    """Charge a round that is not in this ledger, in the caller's transaction."""
    round_id, job, number = forgotten.round_id, forgotten.job, forgotten.number
    file.database.execute(
        "INSERT INTO adopted SELECT ?1, ?2, ?3"
        " WHERE NOT EXISTS (SELECT 1 FROM rounds WHERE (round, job, number) = (?1, ?2, ?3))"
        " AND NOT EXISTS (SELECT 1 FROM adopted WHERE round = ?1)",
        (round_id, job, number),
    )
    append(file, round_id, job, number, forgotten.cost, now, forgotten.clients)


def contribution_id(submission: str, record: int) -> str:
    """Return the id under which a contribution is charged, a digest of submission and place.

    So neither can be changed on file unnoticed; the record's place never leaves here.
    """
    return sha256("contribution", canonical_json({"record": record, "submission": submission}))


def append(
    file: StateFile,
    charged_for: str,
    job: str,
    number: int,
    cost: Cost,
    now: datetime,
    clients: BitMap,
) -> None:
    """Append an entry that charges clients; `charged_for` names a round or a contribution.

    Raises:
        sqlite3.IntegrityError: one of them was charged for this number of the job already.
    """
    head = _head(file)
    entry = LedgerEntry(
        ledger=HOLDER,
        number=head.number + 1,
        previous=head.digest,
        kind="charge",
        round=charged_for,
        job=job,
        job_rounds=None,
        population=population_digest(encode_clients(clients)),
        clients=len(clients),
        mu=cost.mu,
        epsilon=cost.stated_epsilon,
        at=now,
    )
    file.database.execute(
        "INSERT INTO ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(entry.number, entry.previous, entry.kind, charged_for, job, cost.mu, entry.epsilon),
            *(format_time(entry.at), entry.digest),
        ),
    )
    file.database.executemany(
        "INSERT INTO charged (charge, job, number, client) VALUES (?, ?, ?, ?)",
        ((entry.number, job, number, client) for client in clients),
    )
    file.database.execute(
        "UPDATE ledger_head SET number = ?, digest = ?", (entry.number, entry.digest)
    )


def entries(file: StateFile, *, after: int, count: int) -> list[LedgerEntry]:
    """Return up to `count` entries that follow entry `after`.

    Raises:
        LedgerBroken: a row is not one that this program wrote.
    """
    last = after + count
    return [entry for entry, _ in _read(file, after, last)]


def charges(file: StateFile, *, after: int, count: int) -> list[ClientCharge]:
    """Return up to `count` clients' charges that follow the one with the number `after`."""
    rows = file.rows(
        "SELECT entry, job, number, round, client, mu, epsilon, at FROM spending"
        " WHERE entry > ? ORDER BY entry LIMIT ?",
        after,
        count,
    )
    return [ClientCharge(*row) for row in rows]


def verify(file: StateFile) -> None:
    """Check the whole ledger, to its last byte, and that it charges every answer on file.

    Raises:
        LedgerBroken: something was changed, removed or added by hand.
    """
    chain, clients = Chain(), 0
    for entry, charged in _read(file, 0, None):
        if entry.ledger != HOLDER or entry.kind != "charge":
            raise LedgerBroken(f"ledger entry {entry.number} is no data holder's")
        try:
            chain.follow(entry)
        except MalformedDocument as error:
            raise LedgerBroken(str(error)) from error
        place = _place(file, entry)
        for row in charged:
            clients += 1
            if (row[0], row[2:4]) != (clients, place):
                raise LedgerBroken(f"the clients of ledger entry {entry.number} were changed")
    if chain.head != _head(file):
        raise LedgerBroken("the ledger does not end where it did: entries were removed")
    if file.one("SELECT COUNT(*) FROM charged") != (clients,):
        raise LedgerBroken("clients are charged without an entry in the ledger")
    # rows of the outbox stay when their envelopes are erased
    unpaid = file.one(
        "SELECT 1 FROM outbox JOIN rounds USING (round) WHERE NOT EXISTS ("
        " SELECT 1 FROM charged WHERE (charged.job, charged.number) = (rounds.job, rounds.number))"
        " UNION ALL SELECT 1 FROM contributions WHERE NOT EXISTS ("
        " SELECT 1 FROM charged WHERE (charged.job, charged.client, charged.number)"
        " = (contributions.job, contributions.client, contributions.number)) LIMIT 1"
    )
    if unpaid is not None:
        raise LedgerBroken("an answer on file is not in the ledger: entries were removed")


def _place(file: StateFile, entry: LedgerEntry) -> tuple[str, int]:
    """Return job and number of what an entry charges.

    Raises:
        LedgerBroken: it is not on file as it was charged.
    """
    round_of = file.one(
        "SELECT job, number FROM rounds WHERE round = ?1"
        " UNION ALL SELECT job, number FROM adopted WHERE round = ?1",
        entry.round,
    )
    if round_of is not None and round_of[0] == entry.job:
        return round_of[0], round_of[1]
    found = file.one(
        "SELECT job, number, client, record, submission FROM contributions WHERE contribution = ?",
        entry.round,
    )
    if found is None or found[0] != entry.job:
        what = "a round or contribution that is not on file"
        raise LedgerBroken(f"ledger entry {entry.number} charges {what}")
    job, number, client, record, submission = found
    if (entry.round, entry.population) != (
        contribution_id(submission, record),
        population_digest(encode_clients(BitMap([client]))),
    ):
        raise LedgerBroken(f"the contribution of ledger entry {entry.number} was changed")
    return job, number


def _head(file: StateFile) -> Head:
    row = file.one("SELECT number, digest FROM ledger_head")
    if row is None:
        raise LedgerBroken("the ledger's head is gone")
    return Head(*row)


def _read(file: StateFile, after: int, last: int | None) -> Iterator[tuple[LedgerEntry, list[Any]]]:
    """Yield entries with the rows (entry, charge, job, number, client) of their clients."""
    bounds = (after, last if last is not None else 2**62)
    rows = file.database.execute(
        "SELECT entry, charge, job, number, client FROM charged"
        " WHERE charge > ? AND charge <= ? ORDER BY charge, entry",
        bounds,
    )
    groups = groupby(rows, key=itemgetter(1))
    group = next(groups, None)
    for row in file.rows(
        "SELECT number, previous, kind, round, job, mu, epsilon, at, digest FROM ledger"
        " WHERE number > ? AND number <= ? ORDER BY number",
        *bounds,
    ):
        number, previous, kind, round_id, job, mu, epsilon, at, digest = row
        if group is None or group[0] != number:
            raise LedgerBroken(f"ledger entry {number} charges nobody")
        charged = list(group[1])
        try:
            population = BitMap([each[4] for each in charged])
            entry = LedgerEntry(
                ledger=HOLDER,
                number=number,
                previous=previous,
                kind=kind,
                round=round_id,
                job=job,
                job_rounds=None,
                population=population_digest(encode_clients(population)),
                clients=len(charged),
                mu=mu,
                epsilon=epsilon,
                at=at,
            )
            if entry.digest != digest:
                raise ValueError("the rows are not the entry of which they have the digest")
        except (ValueError, TypeError, OverflowError):
            what = f"ledger entry {number} is not one that this program wrote"
            raise LedgerBroken(what) from None
        yield entry, charged
        group = next(groups, None)
    rows.close()
