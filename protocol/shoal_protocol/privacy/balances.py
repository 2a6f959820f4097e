"""Sums of charges by client index, in mu and in pure epsilon; in memory only."""

from typing import Self

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import Cap, Cost

_MU_SQUARED, _EPSILON, _UNBOUNDED = range(3)


class Balances:
    """Costs by client, composed as `shoal_protocol.privacy.accounting.compose` does.

    Costs without a finite epsilon are counted apart, so that they can be taken back.
    """

    def __init__(self, *, of_few: bool = False) -> None:
        """Begin without charges.

        With `of_few`, memory follows from the number of clients that are charged; else from the
        largest index, which is faster.
        """
        self._known = np.zeros(0, np.uint32) if of_few else None  # by place, else a place each
        self._sums = np.zeros((3, 0))

    def copy(self) -> Self:
        """Return the same sums, to be changed apart from these."""
        made = type(self)()
        made._known, made._sums = self._known, self._sums.copy()
        return made

    @property
    def charged(self) -> BitMap:
        """Return the clients of whom a sum is above zero."""
        places = np.flatnonzero(self._sums.any(axis=0)).astype(np.uint32)
        return BitMap(places if self._known is None else self._known[places])

    def add(self, clients: BitMap, cost: Cost) -> None:
        """Charge each of `clients`."""
        self._change(clients, _as_sums(cost))

    def take_back(self, clients: BitMap, cost: Cost) -> None:
        """Return a charge to each of `clients`."""
        self._change(clients, -_as_sums(cost))

    def reserve(self, clients: BitMap, cost: Cost, *, spent: Self) -> None:
        """Charge each of `clients` what is left of `cost` after what it has spent of it."""
        self._change(clients, np.maximum(_as_sums(cost) - spent._sums_of(clients), 0.0))

    def _change(self, clients: BitMap, change: NDArray[np.float64]) -> None:
        places = self._places(clients)  # which may put a longer array in place
        self._sums[:, places] = np.maximum(self._sums[:, places] + change, 0.0)

    def of(self, clients: BitMap) -> dict[int, Cost]:
        """Return the sums of each of `clients`."""
        mu_squared, epsilon = self._of(clients)
        sums = list(zip(np.sqrt(mu_squared).tolist(), epsilon.tolist(), strict=True))
        costs = {each: Cost(mu=each[0], epsilon=each[1]) for each in set(sums)}
        return {client: costs[each] for client, each in zip(clients, sums, strict=True)}

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
        return clients.copy() if able.all() else BitMap(np.asarray(clients.to_array())[able])

    def _of(self, clients: BitMap) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        sums = self._sums_of(clients)
        return sums[_MU_SQUARED], np.where(sums[_UNBOUNDED] > 0.0, np.inf, sums[_EPSILON])

    def _sums_of(self, clients: BitMap) -> NDArray[np.float64]:
        """Return the sums of `clients`, shape (3, n). Nothing changes: several may read at once."""
        wanted = np.asarray(clients.to_array())
        if self._known is None:
            if clients and clients.max() < self._sums.shape[1]:
                return self._sums[:, _together(wanted)]
            places, there = wanted, wanted < self._sums.shape[1]
        else:
            places = np.searchsorted(self._known, wanted)
            there = places < self._known.size
            there[there] = self._known[places[there]] == wanted[there]
        sums = np.zeros((3, wanted.size))
        sums[:, there] = self._sums[:, places[there]]
        return sums

    def _places(self, clients: BitMap) -> NDArray[np.intp] | slice:
        """Return where the sums of `clients` are; those without any get a place."""
        wanted, have = np.asarray(clients.to_array()), self._sums.shape[1]
        if self._known is None:
            size = clients.max() + 1 if clients else 0
            if size > have:  # twofold, so that clients one by one cost linear time
                more = np.zeros((3, max(size, 2 * have) - have))
                self._sums = np.concatenate([self._sums, more], axis=1)
            return _together(wanted)
        if np.array_equal(self._known, wanted):
            return slice(None)
        together = np.union1d(self._known, wanted)
        if together.size > have:
            sums = np.zeros((3, together.size))
            sums[:, np.searchsorted(together, self._known)] = self._sums
            self._known, self._sums = together, sums
        return np.searchsorted(together, wanted)


def _together(places: NDArray[np.uint32]) -> NDArray[np.intp] | slice:
    """Return ascending places, as a slice, many times as fast, where none is left out."""
    if places.size and places[-1] - places[0] + 1 == places.size:
        return slice(int(places[0]), int(places[-1]) + 1)
    return places.astype(np.intp)


def _as_sums(cost: Cost) -> NDArray[np.float64]:
    finite = cost.stated_epsilon
    return np.array([[cost.mu**2], [finite or 0.0], [float(finite is None)]])
