"""What earlier charges leave to clients for a crowd job. Nothing here depends on records."""

import json
import math
from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from pyroaring import BitMap

from shoal_holder.policy import Policy
from shoal_holder.state import State
from shoal_protocol.privacy.accounting import Cap, Cost, compose


def crowds_cap(policy: Policy) -> Cap:
    """Return what all crowd jobs together may cost one client.

    Raises:
        ValueError: no crowd job is allowed, and there is no cap of 0.
    """
    return Cap(epsilon=policy.maximum_local_epsilon or 0.0, delta=0.0)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The cost of one contribution to a job, and the limits on their number.

    A client makes at most `per_client`. `cap` limits all that a client spends, on rounds and crowds
    together, and `crowds_cap` what it spends on crowds.
    """

    cost: Cost
    per_client: int
    cap: Cap
    crowds_cap: Cap

    def allow(self, used: "Used", *, committed: Cost, times: int = 1) -> bool:
        """Tell whether a client may contribute so many more `times`.

        `committed` is what it has spent, and what open jobs may still ask of it.
        """
        cost = Cost(mu=math.sqrt(times) * self.cost.mu, epsilon=times * self.cost.epsilon)
        return (
            used.made + times <= self.per_client
            and self.cap.allows(compose([committed, cost]))
            and self.crowds_cap.allows(Cost.pure(used.epsilon + cost.epsilon))
        )


@dataclass(frozen=True)
class Used:
    """How often a client contributed to a job, and what it was charged for all crowd jobs."""

    made: int = 0
    epsilon: float = 0.0


def used_by(state: State, job: str, clients: Collection[int]) -> dict[int, Used]:
    """Return the charges of clients."""
    rows = state.file.rows(
        "SELECT client, SUM(job = ?), SUM(json_extract(body, '$.epsilon')) FROM journal"
        " WHERE client IN (SELECT value FROM json_each(?)) GROUP BY client",
        *(job, json.dumps([*clients])),
    )
    charged = {client: Used(made, epsilon) for client, made, epsilon in rows}
    return {client: charged.get(client, Used()) for client in clients}


def contributions_left(
    state: State, job: str, clients: Collection[int], limits: Limits
) -> dict[int, int]:
    """Return how many contributions to the job each of `clients` may make.

    What other jobs take of the same allowance is not foreseen, only what they have taken.
    """
    committed, used = state.committed().of(BitMap(clients)), used_by(state, job, clients)

    @cache  # many clients have spent the same
    def left(used: Used, committed: Cost) -> int:
        def is_refused(times: int) -> bool:
            return not limits.allow(used, committed=committed, times=times)

        return bisect_left(range(1, limits.per_client + 1), True, key=is_refused)

    return {client: left(used[client], committed[client]) for client in clients}
