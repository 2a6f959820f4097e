"""The data holders that a round asks, and with which slots; it follows from population and roster.

A data holder answers for all of its slots in the population at once, so whoever counts answers
counts the slots behind them.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from shoal_protocol.trust.roster import Roster


@dataclass(frozen=True)
class AskedHolders:
    """Data holders by index, and the slots of each that a round asks."""

    holders: BitMap
    counts: npt.NDArray[np.int64]  # of each holder's slots, shape (holders,), by ascending index
    _slots: npt.NDArray[np.uint32] = field(repr=False)  # of the population, ascending
    _owners: npt.NDArray[np.uint32] = field(repr=False)  # of each slot

    @staticmethod
    def of(population: BitMap, roster: Roster) -> "AskedHolders":
        """Return whom a round asks that has this population.

        Raises:
            UnknownHolder: a slot of it was never given.
        """
        slots = np.asarray(population.to_array(), np.uint32)
        owners = roster.owners_of(slots)
        counts = np.bincount(owners).astype(np.int64)
        holders = np.flatnonzero(counts)
        return AskedHolders(BitMap(holders), counts[holders], slots, owners)

    def __len__(self) -> int:
        """Return how many data holders are asked."""
        return len(self.holders)

    def count(self, holders: BitMap) -> int:
        """Return how many slots these data holders are asked for; all of them are asked."""
        if len(holders) == len(self.holders):
            return len(self._slots)
        asked = np.asarray(self.holders.to_array())
        return int(self.counts[np.isin(asked, np.asarray(holders.to_array()))].sum())

    def largest(self, holders: int) -> int:
        """Return how many slots so many data holders are asked for at most."""
        return int(np.sort(self.counts)[::-1][:holders].sum())

    @property
    def smallest(self) -> int:
        """Return the fewest slots that a data holder is asked for."""
        return int(self.counts.min())

    def slots_of(self, holders: BitMap) -> BitMap:
        """Return the slots that these data holders are asked for."""
        if len(holders) == len(self.holders):
            return BitMap(self._slots)
        return BitMap(self._slots[np.isin(self._owners, np.asarray(holders.to_array()))])
