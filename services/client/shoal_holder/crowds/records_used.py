"""What earlier charges leave to clients, and with which of its places a client may contribute.

A job asks for so many of each client's records: its places. Places are counted and charged whether
or not the client has a record there, so nothing here depends on records.
"""

import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from pyroaring import BitMap

from shoal_holder.crowds.status import CrowdAccounts, CrowdSpending, RecordsLeft
from shoal_holder.policy import Policy
from shoal_holder.site import Site
from shoal_holder.state import State
from shoal_protocol.privacy.accounting import Cap, Cost, compose
from shoal_protocol.privacy.job_costs import epsilon_left

_SUMS: Final = (
    "SELECT client, contributions.job, record, COUNT(*), SUM(epsilon) FROM contributions"
    " JOIN ledger ON contribution = ledger.round"
)
_OF_ALL: Final = _SUMS + " GROUP BY client, contributions.job, record"
_OF_ONE: Final = _SUMS + " WHERE client = ? GROUP BY client, contributions.job, record"


def record_cap(policy: Policy) -> Cap:
    """Return what all crowd jobs together may cost one record.

    Raises:
        ValueError: no crowd job is allowed, and there is no cap of 0.
    """
    return Cap(epsilon=policy.maximum_local_epsilon or 0.0, delta=0.0)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The cost of one contribution to a job, and the limits on their number.

    A client makes at most `per_client`, with one of its records at most `per_record`. `cap` limits
    all that a client spends, on rounds and crowds together, and `record_cap` all that one record
    spends on crowds.
    """

    cost: Cost
    per_client: int
    per_record: int
    cap: Cap
    record_cap: Cap

    @property
    def places(self) -> int:
        """How many of a client's records the job asks for: as few as its counts allow."""
        return -(-self.per_client // self.per_record)


@dataclass
class Used:
    """One client's charges: in this job by place, as (times, epsilon), and in others."""

    places: dict[int, tuple[int, float]] = field(default_factory=dict)
    elsewhere: float = 0.0
    """Epsilon, of a place in each other job: the most that any one record may have spent there."""

    @property
    def made(self) -> int:
        """Return how often the client contributed to this job."""
        return sum(times for times, _ in self.places.values())


def allowed_places(
    state: State, job: str, client: int, limits: Limits, *, committed: Cost
) -> list[int]:
    """Return the places of a client that may contribute once more.

    `committed` is what the client has spent, and what open jobs may still ask of it.
    """
    used = used_places(state, job, client)[client]
    if used.made >= limits.per_client or not limits.cap.allows(compose([committed, limits.cost])):
        return []

    def is_allowed(place: int) -> bool:
        times, spent = used.places.get(place, (0, 0.0))
        once_more = Cost.pure(used.elsewhere + spent + limits.cost.epsilon)
        return times < limits.per_record and limits.record_cap.allows(once_more)

    return [place for place in range(limits.places) if is_allowed(place)]


def used_places(state: State, job: str, client: int | None = None) -> defaultdict[int, Used]:
    """Return the charges of every client that ever contributed, or of the one given."""
    found = defaultdict[int, Used](Used)
    others: dict[tuple[int, str], float] = {}
    rows = state.file.rows(_OF_ALL) if client is None else state.file.rows(_OF_ONE, client)
    for each, where, place, times, epsilon in rows:
        if where == job:
            found[each].places[place] = (times, epsilon)
        else:
            others[each, where] = max(others.get((each, where), 0.0), epsilon)
    for (each, _), epsilon in others.items():
        found[each].elsewhere += epsilon
    return found


def contributions_left(
    state: State, job: str, clients: Collection[int], limits: Limits
) -> dict[int, int]:
    """Return as many contributions of each of `clients` as it can make to the job, or some more.

    What other jobs take of the same allowance is not foreseen, only what they have taken. How many
    records a client has does not count.
    """
    committed, used = state.committed().of(BitMap(clients)), used_places(state, job)
    affordable = {  # cached: many clients have spent the same, and computing the rest is slow
        spent: _times(epsilon_left(limits.cap, spent)[0], limits.cost)
        for spent in set(committed.values())
    }

    def left(client: int) -> int:
        own = used[client]
        epsilon = limits.record_cap.epsilon - own.elsewhere
        each = min(limits.per_record, _times(epsilon, limits.cost))
        of_places = sum(
            max(0, each - own.places.get(place, (0, 0.0))[0]) for place in range(limits.places)
        )
        of_client = min(limits.per_client - own.made, affordable[committed[client]])
        return max(0, min(of_client, of_places))

    return {client: left(client) for client in clients}


def _times(epsilon: float, cost: Cost) -> int:
    """Return how often a cost fits into epsilon; the last bit is forgiven, as by caps."""
    return math.floor(epsilon / cost.epsilon * (1.0 + 1e-9))


def so_far(state: State, site: Site) -> CrowdAccounts:
    """Return what crowd jobs were charged, and what the owner's policy leaves to the records."""
    rows = state.file.rows(
        "SELECT contributions.job, COUNT(*), COUNT(DISTINCT client), MAX(epsilon)"
        " FROM contributions JOIN ledger ON contribution = ledger.round"
        " GROUP BY contributions.job ORDER BY MIN(ledger.number)"
    )
    jobs = tuple(CrowdSpending(*row) for row in rows)
    if site.policy.maximum_local_epsilon is None:
        return CrowdAccounts(jobs, None)
    # of each client the least that any record can have left: one chosen in every job
    cap = record_cap(site.policy).epsilon
    left = [cap - used.elsewhere for used in used_places(state, job="").values()]
    if len(left) < len(site.positions()) or not left:
        left.append(cap)
    # sums of shares of a cap miss it by their last bits
    least, most = (each if each > 1e-9 * cap else 0.0 for each in (min(left), max(left)))
    return CrowdAccounts(jobs, RecordsLeft(cap, least, most))
