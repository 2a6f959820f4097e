"""Which records may contribute to a crowd job once more, by what was charged before; reads only."""

from collections.abc import Iterable
from dataclasses import dataclass

from shoal_client.state import State
from shoal_protocol.accounting import NOTHING, Cap, Cost, compose


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one contribution to a job costs, and how many there may be.

    At most `per_client` of a client and `per_record` of one of its records to this job; `cap` is
    on all that a client spends, on rounds and crowds together, and `record_cap` on all that one
    record spends on crowds.
    """

    cost: Cost
    per_client: int
    per_record: int
    cap: Cap
    record_cap: Cap


def allowed_records(
    state: State, job: str, client: int, records: int, limits: Limits, *, committed: Cost
) -> list[int]:
    """Return the places of those of a client's `records` that may contribute once more.

    `committed` is what the client has spent, and what open jobs may still ask of it.
    """
    (made,) = state.file.one(
        "SELECT COUNT(*) FROM contributions WHERE job = ? AND client = ?", job, client
    )
    if made >= limits.per_client or not limits.cap.allows(compose([committed, limits.cost])):
        return []
    used = {
        record: (times, Cost.pure(epsilon))
        for record, times, epsilon in state.file.rows(
            "SELECT record, SUM(contributions.job = ?), SUM(epsilon) FROM contributions"
            " JOIN spending USING (job, client, number) WHERE client = ? GROUP BY record",
            job,
            client,
        )
    }

    def is_allowed(record: int) -> bool:
        times, spent = used.get(record, (0, NOTHING))
        return times < limits.per_record and limits.record_cap.allows(compose([spent, limits.cost]))

    return [record for record in range(records) if is_allowed(record)]


def used_records(state: State, job: str) -> dict[int, dict[int, tuple[int, float]]]:
    """Return {client: {record: (times in this job, epsilon in all of them)}} of all that was."""
    used: dict[int, dict[int, tuple[int, float]]] = {}
    for client, record, times, epsilon in state.file.rows(
        "SELECT client, record, SUM(contributions.job = ?), SUM(epsilon) FROM contributions"
        " JOIN spending USING (job, client, number) GROUP BY client, record",
        job,
    ):
        used.setdefault(client, {})[record] = (times, epsilon)
    return used


def contributions_made(state: State, job: str, clients: Iterable[int]) -> dict[int, int]:
    """Return how often each of `clients` has contributed to a job."""
    made = dict(
        state.file.rows(
            "SELECT client, COUNT(*) FROM contributions WHERE job = ? GROUP BY client", job
        )
    )
    return {client: made.get(client, 0) for client in clients}
