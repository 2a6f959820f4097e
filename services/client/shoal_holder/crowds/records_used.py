"""Decides by earlier charges with which of its places a client may contribute once more.

A job asks for so many of each client's records: its places. Places are counted and charged whether
or not the client has a record there, so nothing here depends on records.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from shoal_holder.policy import Policy
from shoal_holder.state import State
from shoal_protocol.privacy.accounting import Cap, Cost, compose

_SUMS: Final = (
    "SELECT client, contributions.job, record, COUNT(*), SUM(epsilon) FROM contributions"
    " JOIN ledger ON contribution = ledger.round"
)
_OF_ALL: Final = _SUMS + " GROUP BY client, contributions.job, record"
_OF_ONE: Final = _SUMS + " WHERE client = ? GROUP BY client, contributions.job, record"


def record_cap(policy: Policy) -> Cap:
    """Return what all crowd jobs together may cost one record.

    Raises:
        ValueError: no crowd job is allowed.
    """
    if policy.maximum_local_epsilon is None:
        raise ValueError("the policy allows no crowd jobs: it has no maximum_local_epsilon")
    return Cap(epsilon=policy.maximum_local_epsilon, delta=0.0)


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


def allowed_places(
    state: State, job: str, client: int, limits: Limits, *, committed: Cost
) -> list[int]:
    """Return the places of a client that may contribute once more.

    `committed` is what the client has spent, and what open jobs may still ask of it.
    """
    used = used_places(state, job, client).get(client, Used())
    made = sum(times for times, _ in used.places.values())
    if made >= limits.per_client or not limits.cap.allows(compose([committed, limits.cost])):
        return []

    def is_allowed(place: int) -> bool:
        times, spent = used.places.get(place, (0, 0.0))
        once_more = Cost.pure(used.elsewhere + spent + limits.cost.epsilon)
        return times < limits.per_record and limits.record_cap.allows(once_more)

    return [place for place in range(limits.places) if is_allowed(place)]


def used_places(state: State, job: str, client: int | None = None) -> dict[int, Used]:
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
    return dict(found)


def contributions_made(state: State, job: str, clients: Iterable[int]) -> dict[int, int]:
    """Return how often each of `clients` has contributed to a job."""
    made = dict(
        state.file.rows(
            "SELECT client, COUNT(*) FROM contributions WHERE job = ? GROUP BY client", job
        )
    )
    return {client: made.get(client, 0) for client in clients}
