"""Computes how often each client here may still contribute to a crowd job."""

import math
from collections.abc import Collection

from pyroaring import BitMap

from shoal_holder.crowds.records_used import Limits, Used, contributions_made, used_places
from shoal_holder.state import State
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.epsilons import epsilon_left


def contributions_left(
    state: State, job: str, clients: Collection[int], limits: Limits
) -> dict[int, int]:
    """Return as many contributions of each of `clients` as it can make to the job, or some more.

    What other jobs take of the same allowance is not foreseen, only what they have taken. How many
    records a client has does not count.
    """
    made = contributions_made(state, job, clients)
    committed = state.committed().of(BitMap(clients))
    used = used_places(state, job)

    def of_places(client: int) -> int:
        found = used.get(client, Used())
        epsilon = limits.record_cap.epsilon - found.elsewhere
        each = min(limits.per_record, _times(epsilon, limits.cost))
        return sum(
            max(0, each - found.places.get(place, (0, 0.0))[0]) for place in range(limits.places)
        )

    affordable = {  # cached: many clients have spent the same, and computing the rest is slow
        spent: _times(epsilon_left(limits.cap, spent)[0], limits.cost)
        for spent in set(committed.values())
    }
    left = {}
    for client in clients:
        of_client = affordable[committed[client]]
        left[client] = max(0, min(limits.per_client - made[client], of_places(client), of_client))
    return left


def _times(epsilon: float, cost: Cost) -> int:
    """Return how often a cost fits into epsilon; the last bit is forgiven, as by caps."""
    return math.floor(epsilon / cost.epsilon * (1.0 + 1e-9))
