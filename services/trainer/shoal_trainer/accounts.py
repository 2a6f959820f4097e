"""What each client is committed to; arrays of squared mu, nothing durable.

Replacement adjacency throughout; releases on the same client compose by adding mu^2.
"""

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from shoal_protocol.accounting import fits_budget


class Accounts:
    """Committed: rounds announced so far, and the rest of what open jobs may cost.

    A join is refused on what is committed, so a job that has begun never runs out of budget.
    """

    def __init__(self) -> None:
        """Begin with nothing spent."""
        self._committed = np.zeros(0)

    def commit(self, clients: BitMap, squared_mu: float) -> None:
        """Set aside `squared_mu` of each client's budget."""
        self._committed = _grown(self._committed, clients)
        self._committed[_indices(clients)] += squared_mu

    def release(self, clients: BitMap, squared_mu: float) -> None:
        """Give back what was set aside and not spent."""
        committed = self._committed[_indices(clients)] - squared_mu
        self._committed[_indices(clients)] = np.maximum(committed, 0.0)

    def affords(self, client: int, *, mu: float, budget_mu: float) -> bool:
        """Tell whether a further `mu` keeps `client` within `budget_mu`."""
        committed = self._committed[client] if client < len(self._committed) else 0.0
        return fits_budget(spent_mu=float(np.sqrt(committed + mu * mu)), budget_mu=budget_mu)

    def count_affording(self, clients: BitMap, *, mu: float, budget_mu: float) -> int:
        """Return how many of `clients` a further `mu` keeps within `budget_mu`."""
        committed = _grown(self._committed, clients)[_indices(clients)]
        levels, counts = np.unique(np.sqrt(committed + mu * mu), return_counts=True)
        return sum(
            int(count)
            for level, count in zip(levels, counts, strict=True)
            if fits_budget(spent_mu=float(level), budget_mu=budget_mu)
        )


def _indices(clients: BitMap) -> NDArray[np.int64]:
    return np.asarray(clients.to_array(), dtype=np.int64)


def _grown(account: NDArray[np.float64], clients: BitMap) -> NDArray[np.float64]:
    size = clients.max() + 1 if clients else 0
    if size <= len(account):
        return account
    # twofold, so that joins one by one cost linear time
    return np.concatenate([account, np.zeros(max(size, 2 * len(account)) - len(account))])
