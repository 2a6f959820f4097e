"""Sums up what each client spent and what open jobs reserve, in mu and in pure epsilon."""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer
from pyroaring import BitMap

from shoal_holder.state_file import StateFile
from shoal_kit.outcome import ACKNOWLEDGED, PENDING
from shoal_protocol.privacy.accounting import Balances, Cost
from shoal_protocol.wire.encoding import decode_clients, encode_clients

StatedCost = Annotated[
    Cost,
    BeforeValidator(lambda stated: Cost.stated(*stated)),
    PlainSerializer(lambda cost: (cost.mu, cost.stated_epsilon)),
]
"""A cost; in JSON its mu and epsilon as documents have them: None is infinite."""


def spent(file: StateFile) -> dict[int, list[Cost]]:
    """Return what each client's answers cost it, one by one."""
    found = defaultdict[int, list[Cost]](list)
    for population, mu, epsilon in file.rows(
        "SELECT population, mu, epsilon FROM ledger ORDER BY number"
    ):
        cost = Cost.stated(mu, epsilon)
        for client in decode_clients(population):
            found[client].append(cost)
    return dict(found)


def spent_alike(file: StateFile) -> list[tuple[str, list[Cost]]]:
    """Return what answers cost, one by one, and which clients they cost the same."""
    alike = defaultdict[tuple[Cost, ...], BitMap](BitMap)
    for client, costs in spent(file).items():
        alike[tuple(costs)].add(client)
    return [(encode_clients(whose), list(costs)) for costs, whose in alike.items()]


def spent_in_job(file: StateFile, job: str, clients: BitMap) -> Cost:
    """Return the most that the rounds of a job answered so far cost one of `clients`."""
    balances = Balances()
    for _, charged, cost in _charges(file, job):
        balances.add(charged & clients, cost)
    return balances.largest(clients)


def committed(file: StateFile) -> Balances:
    """Return the sum of what each client spent and what open jobs may still ask of it."""
    found = Balances()
    in_jobs = defaultdict[str, Balances](Balances)
    for job, charged, cost in _charges(file):
        found.add(charged, cost)
        in_jobs[job].add(charged, cost)
    for mu, epsilon, times, clients in file.rows(
        "SELECT mu, epsilon, times, group_concat(client) FROM ("
        " SELECT mu, epsilon, client, COUNT(*) AS times"
        " FROM contributions JOIN ledger ON contribution = ledger.round"
        " GROUP BY mu, epsilon, client) GROUP BY mu, epsilon, times"
    ):
        each = Cost.stated(mu, epsilon)
        cost = Cost(mu=math.sqrt(times) * each.mu, epsilon=times * each.epsilon)
        found.add(BitMap(map(int, clients.split(","))), cost)
    for job, _, mu, epsilon, slots in reserving(file):
        found.reserve(decode_clients(slots), Cost.stated(mu, epsilon), spent=in_jobs[job])
    return found


def reserving(file: StateFile) -> list[Any]:
    """Return (job, request, mu, epsilon, slots) of open jobs, which hold budget, as joined."""
    return file.rows(
        "SELECT job, request, mu, epsilon, slots FROM jobs"
        " JOIN outbox ON (kind, about) = ('join', job)"
        " WHERE ended IS NULL AND outcome IN (?, ?) ORDER BY jobs.rowid",
        *(PENDING, ACKNOWLEDGED),
    )


def _charges(file: StateFile, job: str | None = None) -> Iterator[tuple[str, BitMap, Cost]]:
    """Yield (job, clients, cost of each) of what rounds were charged, of one job or of all."""
    for row in file.rows(
        "SELECT job, population, mu, epsilon FROM ledger"
        " WHERE place IS NOT NULL AND (?1 IS NULL OR job = ?1)",
        job,
    ):
        yield row[0], decode_clients(row[1]), Cost.stated(*row[2:])
