"""Reads from the journal what each client spent and what open jobs reserve."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, PlainSerializer
from pyroaring import BitMap

from shoal_holder.state_file import StateFile
from shoal_kit.outcome import ACKNOWLEDGED, PENDING
from shoal_protocol.privacy.accounting import NOTHING, Balances, Cost
from shoal_protocol.wire.encoding import decode_clients

StatedCost = Annotated[
    Cost,
    BeforeValidator(lambda stated: Cost.stated(*stated)),
    PlainSerializer(lambda cost: (cost.mu, cost.stated_epsilon)),
]
"""A cost; in JSON its mu and epsilon as documents have them: None is infinite."""


class Charge(NamedTuple):
    """What some clients were charged, each of them `cost`."""

    job: str
    number: int | None  # of the round in its job; None: it was a contribution to a crowd
    what: str  # the round or the contribution
    clients: BitMap
    cost: Cost
    at: str = ""  # none where a node tells of it
    entry: int = 0  # of the journal; none where a node tells of it


def charges(
    file: StateFile, job: str | None = None, *, number: int | None = None, after: int = 0
) -> Iterator[Charge]:
    """Yield what was charged behind entry `after` of the journal, in order.

    Of one job, or of the round of this number in it, or of all jobs. Slots that an answer covers
    and does not use are charged nothing.
    """
    of_job = "" if job is None else " AND job = :job"
    of_round = "" if number is None else " AND json_extract(body, '$.number') = :number"
    rows = file.database.execute(
        "SELECT number, kind, subject, body FROM journal"  # noqa: S608 -- constants
        " WHERE kind IN ('answer', 'charge', 'contribution') AND number > :after"
        f"{of_job}{of_round} ORDER BY number",
        {"after": after, "job": job, "number": number},
    )
    for entry, kind, subject, text in rows:
        body = json.loads(text)
        what = body["round"] if kind == "charge" else subject
        cost, clients = Cost.stated(body["mu"], body["epsilon"]), decode_clients(body["slots"])
        charge = Charge(body["job"], body.get("number"), what, clients, cost, body["at"], entry)
        yield charge
        if kind == "answer" and (unused := decode_clients(body["unused"])):
            yield charge._replace(clients=unused, cost=NOTHING)


def charged(file: StateFile, job: str, number: int | None = None) -> BitMap:
    """Return the clients that were charged for a job, or for the round of this number in it."""
    return BitMap().union(*(each.clients for each in charges(file, job, number=number)))


def spent(file: StateFile) -> Balances:
    """Return the sum of what each client spent."""
    return _sums(file)[0]


def committed(file: StateFile) -> Balances:
    """Return the sum of what each client spent and what open jobs may still ask of it."""
    found, in_jobs = _sums(file)
    for job, _, slots, cost in reserving(file):
        found.reserve(slots, cost, spent=in_jobs[job])
    return found


def _sums(file: StateFile) -> tuple[Balances, dict[str, Balances]]:
    """Return the sum of what each client spent, and of that on each job in rounds."""
    found, in_jobs = Balances(), defaultdict[str, Balances](Balances)
    times = defaultdict[Cost, Counter[int]](Counter)  # that a client paid this to crowds
    for each in charges(file):
        if each.number is None:
            times[each.cost].update(each.clients)
            continue
        found.add(each.clients, each.cost)
        in_jobs[each.job].add(each.clients, each.cost)
    for cost, counts in times.items():
        alike = defaultdict[int, BitMap](BitMap)
        for client, count in counts.items():
            alike[count].add(client)
        for count, clients in alike.items():
            mu = math.sqrt(count) * cost.mu
            found.add(clients, Cost(mu=mu, epsilon=count * cost.epsilon))
    return found, in_jobs


def reserving(file: StateFile) -> list[tuple[str, bytes, BitMap, Cost]]:
    """Return the open jobs, which hold budget: each one's request, slots, and cost to each slot."""
    rows = file.rows(
        "SELECT jobs.job, request FROM jobs JOIN outbox ON (kind, about) = ('join', job)"
        " WHERE ended IS NULL AND outcome IN (?, ?) ORDER BY jobs.rowid",
        *(PENDING, ACKNOWLEDGED),
    )
    return [(job, request, *joined(file, job)) for job, request in rows]


def joined(file: StateFile, job: str) -> tuple[BitMap, Cost]:
    """Return the slots whose records a joined job may use, and what it may cost each of them."""
    [text] = file.one("SELECT body FROM journal WHERE (kind, subject) = ('join', ?)", job)
    body = json.loads(text)
    return decode_clients(body["slots"]), Cost.stated(body["mu"], body["epsilon"])
