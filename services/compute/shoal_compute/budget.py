"""What each client has been charged at this node, and what one may still be; pure arithmetic.

It sums squared GDP parameters over all rounds, whoever asked for them, so that a trainer cannot
exceed the consortium's cap at any node that keeps to its own table.
"""

import math

import numpy as np
from pyroaring import BitMap

from shoal_compute.charges import Charged
from shoal_protocol.accounting import fits_budget
from shoal_protocol.errors import BudgetExceeded


class Budget:
    """Charged mu**2 by client index."""

    def __init__(self) -> None:
        """Begin with nothing charged."""
        self._charged = np.zeros(0, np.float64)

    def count(self, charged: Charged) -> None:
        """Count a charge, or take it back."""
        indices = self._indices(charged.population)
        sign = 1.0 if charged.entry.kind == "charge" else -1.0
        squares = self._charged[indices] + sign * charged.entry.mu**2
        self._charged[indices] = np.maximum(squares, 0.0)

    def check(self, population: BitMap, *, mu: float, maximum_mu: float) -> None:
        """Refuse a charge of `mu` that would take a client past `maximum_mu`.

        Raises:
            BudgetExceeded
        """
        indices = self._indices(population)  # which may put a longer array in place
        spent = float(self._charged[indices].max(initial=0.0)) + mu**2
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
