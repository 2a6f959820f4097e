"""Sums up for the owner what crowd jobs cost the clients here so far."""

from typing import Final

from shoal_holder.crowds.records_used import record_cap, used_places
from shoal_holder.crowds.status import CrowdAccounts, CrowdSpending, RecordsLeft
from shoal_holder.site import Site
from shoal_holder.state import State
from shoal_protocol.privacy.accounting import Cap

_NOTHING_LEFT: Final = 1e-9  # of a cap: sums of shares of it miss it by their last bits


def so_far(state: State, site: Site) -> CrowdAccounts:
    """Return what crowd jobs were charged, and what the owner's policy leaves to the records."""
    rows = state.file.rows(
        "SELECT contributions.job, COUNT(*), COUNT(DISTINCT client), MAX(epsilon)"
        " FROM contributions JOIN ledger ON contribution = ledger.round"
        " GROUP BY contributions.job ORDER BY MIN(ledger.number)"
    )
    left = None
    if site.policy.maximum_local_epsilon is not None:
        left = left_to_records(state, len(site.positions()), record_cap(site.policy))
    return CrowdAccounts(tuple(CrowdSpending(*row) for row in rows), left)


def left_to_records(state: State, clients: int, cap: Cap) -> RecordsLeft:
    """Return what is left of `cap` to the records of so many clients.

    For each client it is the least that any record can have left: one chosen in every job.
    """
    spent = [used.elsewhere for used in used_places(state, job="").values()]
    left = [_left(cap.epsilon, epsilon) for epsilon in spent]
    if len(left) < clients or not left:
        left.append(cap.epsilon)
    return RecordsLeft(cap.epsilon, min(left), max(left))


def _left(cap: float, spent: float) -> float:
    return cap - spent if cap - spent > _NOTHING_LEFT * cap else 0.0
