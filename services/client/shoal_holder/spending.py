"""Sums up what each client spent and what open jobs reserve, in mu and in pure epsilon."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from pyroaring import BitMap

from shoal_holder.state_file import StateFile
from shoal_hosting.outcome import ACKNOWLEDGED, PENDING
from shoal_protocol.privacy.accounting import NOTHING, Cap, Cost, compose
from shoal_protocol.wire.encoding import decode_clients


def spent(file: StateFile) -> dict[int, list[Cost]]:
    """Return what each client's answers cost it, one by one."""
    found = defaultdict[int, list[Cost]](list)
    for client, mu, epsilon in file.rows("SELECT client, mu, epsilon FROM spending"):
        found[client].append(Cost.stated(mu, epsilon))
    return dict(found)


def spent_in_job(file: StateFile, job: str, clients: Iterable[int]) -> Cost:
    """Return the most that the rounds of a job answered so far cost one of `clients`."""
    [[square, pure, unbounded]] = file.rows(
        "SELECT MAX(square), MAX(pure), MAX(unbounded) FROM ("
        " SELECT SUM(mu * mu) AS square, SUM(epsilon) AS pure, MAX(epsilon IS NULL) AS unbounded"
        " FROM spending WHERE job = ? AND client IN (SELECT value FROM json_each(?))"
        " GROUP BY client)",
        job,
        json.dumps(list(clients)),
    )
    return Cost(mu=math.sqrt(square or 0.0), epsilon=math.inf if unbounded else pure or 0.0)


def committed(file: StateFile) -> dict[int, Cost]:
    """Return the sum of what each client spent and what open jobs may still ask of it."""
    squares, pures = defaultdict[int, float](float), defaultdict[int, float](float)
    in_jobs = defaultdict[tuple[str, int], list[float]](lambda: [0.0, 0.0])
    for job, client, mu, epsilon in file.rows("SELECT job, client, mu, epsilon FROM spending"):
        squares[client] += mu * mu
        pures[client] += math.inf if epsilon is None else epsilon
        spent = in_jobs[job, client]
        spent[:] = spent[0] + mu * mu, spent[1] + (epsilon or 0.0)
    for job, mu, epsilon, slots in file.rows(
        "SELECT job, mu, epsilon, slots FROM jobs JOIN joins USING (job)"
        " WHERE ended IS NULL AND outcome IN (?, ?)",
        PENDING,
        ACKNOWLEDGED,
    ):
        for client in decode_clients(slots):
            square, pure = in_jobs.get((job, client), (0.0, 0.0))
            squares[client] += max(0.0, mu * mu - square)
            pures[client] += math.inf if epsilon is None else max(0.0, epsilon - pure)
    costs = {
        each: Cost(mu=math.sqrt(each[0]), epsilon=each[1])
        for each in {(squares[client], pures[client]) for client in squares}
    }
    return {client: costs[squares[client], pures[client]] for client in squares}


def affording(
    slots: Iterable[int], committed: Mapping[int, Cost], cap: Cap, *, more: Cost = NOTHING
) -> BitMap:
    """Return those of `slots` whose commitments and a further cost keep within `cap`."""
    found = {cost: cap.allows(compose([cost, more])) for cost in {NOTHING, *committed.values()}}
    return BitMap(slot for slot in slots if found[committed.get(slot, NOTHING)])
