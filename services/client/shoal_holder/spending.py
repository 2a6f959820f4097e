"""Sums up what each client spent and what open jobs reserve, in mu and in pure epsilon."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable

from shoal_holder.state_file import StateFile
from shoal_hosting.outcome import ACKNOWLEDGED, PENDING
from shoal_protocol.privacy.accounting import Cost


def spent(file: StateFile) -> dict[int, list[Cost]]:
    """Return what each client's answers cost it, one by one."""
    found = defaultdict[int, list[Cost]](list)
    for client, mu, epsilon in file.rows("SELECT client, mu, epsilon FROM spending"):
        found[client].append(Cost.stated(mu, epsilon))
    return dict(found)


def spent_in_job(file: StateFile, job: str, clients: Iterable[int]) -> Cost:
    """Return the most that the rounds of a job answered so far cost one of `clients`."""
    rows = file.rows(
        "SELECT MAX(square), MAX(pure), MAX(unbounded) FROM ("
        " SELECT SUM(mu * mu) AS square, SUM(epsilon) AS pure, MAX(epsilon IS NULL) AS unbounded"
        " FROM spending WHERE job = ? AND client IN (SELECT value FROM json_each(?))"
        " GROUP BY client)",
        job,
        json.dumps(list(clients)),
    )
    return _cost(*rows[0])


def committed(file: StateFile) -> dict[int, Cost]:
    """Return the sum of what each client spent and what open jobs may still ask of it."""
    rows = file.rows(
        "SELECT client, SUM(square), SUM(pure), MAX(unbounded) FROM ("
        " SELECT client, mu * mu AS square, epsilon AS pure, epsilon IS NULL AS unbounded"
        "  FROM spending"
        " UNION ALL"
        " SELECT client, MAX(0.0, mu * mu - COALESCE(square, 0.0)),"
        "  MAX(0.0, epsilon - COALESCE(pure, 0.0)), epsilon IS NULL FROM jobs"
        "  JOIN joins USING (job) LEFT JOIN"
        "  (SELECT job, client, SUM(mu * mu) AS square, SUM(epsilon) AS pure"
        "   FROM spending GROUP BY job, client) USING (job, client)"
        "  WHERE ended IS NULL AND outcome IN (?, ?)"
        ") GROUP BY client",
        PENDING,
        ACKNOWLEDGED,
    )
    return {client: _cost(*sums) for client, *sums in rows}


def _cost(square: float | None, pure: float | None, unbounded: int | None) -> Cost:
    return Cost(mu=math.sqrt(square or 0.0), epsilon=math.inf if unbounded else pure or 0.0)
