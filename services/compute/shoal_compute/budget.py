"""What each client has been charged at this node, and what one may still be; pure arithmetic.

It sums squared GDP parameters over all rounds, whoever asked for them, so that a trainer cannot
exceed the consortium's cap at any node that keeps to its own table.
"""

import math
from collections.abc import Iterable

import numpy as np
from pyroaring import BitMap

from shoal_compute.charges import Charge
from shoal_protocol.accounting import fits_budget
from shoal_protocol.errors import BudgetExceeded


class Budget:
    """Charged mu**2 by client index, after the first `last` entries of the list of charges."""

    def __init__(self) -> None:
        """Begin before the first entry."""
        self.last = 0
        self._charged = np.zeros(0, np.float64)

    def follow(self, entries: Iterable[tuple[int, Charge]]) -> None:
        """Count the entries that follow, each with its number.

        Raises:
            ValueError: one of them does not follow.
        """
        for number, charge in entries:
            if number != self.last + 1:
                raise ValueError("the list of charges has a gap")
            indices = self._indices(charge.population)  # which may put a longer array in place
            self._charged[indices] = np.maximum(self._charged[indices] + charge.mu_squared, 0.0)
            self.last = number

    def check(self, charge: Charge, *, maximum_mu: float) -> None:
        """Refuse a charge that would take a client past `maximum_mu`.

        Raises:
            BudgetExceeded
        """
        indices = self._indices(charge.population)
        spent = float(self._charged[indices].max(initial=0.0)) + charge.mu_squared
        if not fits_budget(spent_mu=math.sqrt(spent), budget_mu=maximum_mu):
            raise BudgetExceeded("a client's rounds together would cost more than the policy's cap")

    def _indices(self, population: BitMap) -> "np.typing.NDArray[np.uint32]":
        indices = np.array(population, np.uint32)
        size = int(indices[-1]) + 1 if indices.size else 0
        if size > self._charged.size:
            self._charged = np.concatenate(
                [self._charged, np.zeros(size - self._charged.size, np.float64)]
            )
        return indices
