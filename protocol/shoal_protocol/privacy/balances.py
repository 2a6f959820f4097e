"""Sums of charges by client index, in mu and in pure epsilon; in memory only."""

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import Cap, Cost

_MU_SQUARED, _EPSILON, _UNBOUNDED = range(3)


class Balances:
    """Costs by client, composed as `shoal_protocol.privacy.accounting.compose` does.

    Costs without a finite epsilon are counted apart, so that they can be taken back.
    """

    def __init__(self) -> None:
        """Begin without charges."""
        self._sums = np.zeros((3, 0))

    def add(self, clients: BitMap, cost: Cost) -> None:
        """Charge each of `clients`."""
        self._change(clients, cost, 1.0)

    def take_back(self, clients: BitMap, cost: Cost) -> None:
        """Return a charge to each of `clients`."""
        self._change(clients, cost, -1.0)

    def _change(self, clients: BitMap, cost: Cost, sign: float) -> None:
        indices = self._indices(clients)  # which may put a longer array in place
        finite = cost.stated_epsilon
        change = [cost.mu**2, finite or 0.0, float(finite is None)]
        changed = self._sums[:, indices] + sign * np.array(change)[:, None]
        self._sums[:, indices] = np.maximum(changed, 0.0)

    def largest(self, clients: BitMap) -> Cost:
        """Return the largest mu and the largest epsilon that any of `clients` was charged."""
        mu_squared, epsilon = self._of(clients)
        return Cost(
            mu=float(np.sqrt(mu_squared.max(initial=0.0))),
            epsilon=float(epsilon.max(initial=0.0)),
        )

    def affording(self, clients: BitMap, cost: Cost, cap: Cap) -> BitMap:
        """Return those of `clients` whom a further cost keeps within `cap`."""
        mu_squared, epsilon = self._of(clients)
        able = cap.holds(mu_squared + cost.mu**2, epsilon + cost.epsilon)
        return BitMap(np.asarray(clients.to_array())[able])

    def _of(self, clients: BitMap) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        indices = self._indices(clients)
        sums = self._sums[:, indices]
        return sums[_MU_SQUARED], np.where(sums[_UNBOUNDED] > 0.0, np.inf, sums[_EPSILON])

    def _indices(self, clients: BitMap) -> NDArray[np.int64]:
        size, have = clients.max() + 1 if clients else 0, self._sums.shape[1]
        if size > have:  # twofold, so that clients one by one cost linear time
            more = np.zeros((3, max(size, 2 * have) - have))
            self._sums = np.concatenate([self._sums, more], axis=1)
        return np.asarray(clients.to_array(), dtype=np.int64)
