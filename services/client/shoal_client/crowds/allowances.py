"""How often each client here may still contribute to a crowd job; reads only."""

import math
from collections.abc import Mapping

from shoal_client.crowds.contributor import Contributor
from shoal_client.crowds.records_used import contributions_made, used_records
from shoal_client.site import Site
from shoal_client.state import State
from shoal_protocol.accounting import NOTHING, Cost


def contributions_left(state: State, site: Site, contributor: Contributor) -> dict[int, int]:
    """Return as many contributions of each client as it can make to the job, or some more.

    What other jobs take of the same allowance is not foreseen, only what they have taken.
    """
    limits = contributor.limits
    positions = contributor.positions()
    made = contributions_made(state, contributor.crowd.job, positions)
    committed: Mapping[int, Cost] = state.committed()
    used = used_records(state, contributor.crowd.job)
    record_cap = limits.record_cap.epsilon

    def of_record(times: int, spent: float) -> int:
        return max(0, min(limits.per_record - times, _times(record_cap - spent, limits.cost)))

    unused = of_record(0, 0.0)
    affordable = {  # many clients have spent alike, and it takes time to say what is left
        spent: _times(limits.cap.left(spent)[0], limits.cost)
        for spent in {NOTHING, *committed.values()}
    }
    left = {}
    for client, position in positions.items():
        count = int(site.records.counts[position])
        before = [each for record, each in used.get(client, {}).items() if record < count]
        of_records = (count - len(before)) * unused + sum(of_record(*each) for each in before)
        of_client = affordable[committed.get(client, NOTHING)]
        left[client] = max(0, min(limits.per_client - made[client], of_records, of_client))
    return left


def _times(epsilon: float, cost: Cost) -> int:
    """Return how often a cost fits into epsilon; the last bit is forgiven, as by caps."""
    return math.floor(epsilon / cost.epsilon * (1.0 + 1e-9))
