"""What each client has been charged at this node, and what one may still be; pure arithmetic.

It sums squared GDP parameters over all rounds, whoever asked for them, so that a trainer cannot
exceed the consortium's cap at any node that keeps to its own table.
"""

import math
from collections.abc import Iterable

import numpy as np
from pyroaring import BitMap

from shoal_compute.store import Charge
from shoal_protocol.errors import BudgetExceeded
from shoal_protocol.privacy import fits_budget


class Budget:
    """Charged mu**2 by client index."""

    def __init__(self, charges: Iterable[Charge]) -> None:
        self._charged = np.zeros(0, np.float64)
        for charge in charges:
            self.add(charge)

    def check(self, charge: Charge, *, maximum_mu: float) -> None:
        """Refuse a charge that would take a client past `maximum_mu`.

        Raises:
            BudgetExceeded
        """
        indices = self._indices(charge.population)
        spent = float(self._charged[indices].max(initial=0.0)) + charge.mu_squared
        if not fits_budget(spent_mu=math.sqrt(spent), budget_mu=maximum_mu):
            raise BudgetExceeded("a client's rounds together would cost more than the policy's cap")

    def add(self, charge: Charge) -> None:
        """Count a charge."""
        indices = self._indices(charge.population)  # which may put a longer array in place
        self._charged[indices] += charge.mu_squared

    def give_back(self, charge: Charge) -> None:
        """Count a charge no more, for its round ended before it held a share."""
        indices = self._indices(charge.population)
        left = self._charged[indices] - charge.mu_squared
        self._charged[indices] = np.maximum(left, 0.0)

    def _indices(self, population: BitMap) -> "np.typing.NDArray[np.uint32]":
        indices = np.array(population, np.uint32)
        size = int(indices[-1]) + 1 if indices.size else 0
        if size > self._charged.size:
            self._charged = np.concatenate(
                [self._charged, np.zeros(size - self._charged.size, np.float64)]
            )
        return indices
