"""Counts in how many rounds of one job each client was asked, and composes their costs.

A client pays for the rounds in which it was asked and for no others.
"""

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.balances import Balances


class Participation:
    """The rounds of a job so far, by client of its population."""

    def __init__(self, population: BitMap) -> None:
        """Begin before the first round of a job that these clients joined."""
        self.population = population
        self._clients = np.asarray(population.to_array())  # ascending
        self._rounds = np.zeros(len(self._clients), dtype=np.int64)
        self._paid = Balances()  # by place in the population

    def add(self, clients: BitMap, cost: Cost) -> None:
        """Add a round that asks `clients`, at `cost` to each of them.

        Raises:
            ValueError: one of them is not of the population.
        """
        places = self.places(clients)
        self._rounds[places] += 1
        self._paid.add(BitMap(places.astype(np.uint32)), cost)

    def places(self, clients: BitMap) -> NDArray[np.int64]:
        """Return where in the population, in ascending order, these clients are.

        Raises:
            ValueError: one of them is not of the population.
        """
        if not clients.issubset(self.population):
            raise ValueError("a round asks clients who are not of the job's population")
        return np.searchsorted(self._clients, np.asarray(clients.to_array())).astype(np.int64)

    @property
    def rounds(self) -> NDArray[np.int64]:
        """Return how many rounds asked each client, shape (population,), in ascending order."""
        return self._rounds

    def largest(self, clients: BitMap | None = None) -> Cost:
        """Return the most that any of `clients`, or of all, pays for the rounds so far.

        mu and epsilon each are the largest that one of them pays.
        """
        places = self.places(self.population if clients is None else clients)
        return self._paid.largest(BitMap(places.astype(np.uint32)))
