"""Adds up stored shares, one place of the store at a time.

A small sum is added up in a thread: other processes or machines would take longer to be told of
it. Of a large one as many places are in memory as can be worked on at once, and one more.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from pyroaring import BitMap

from shoal_compute.bulks import Packed, Place
from shoal_compute.executors import Summing
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.wire.encoding import Uint64Vector


class StoredShares(Protocol):
    """The shares of a round that are stored."""

    async def places(self, holders: BitMap) -> list[Place]:
        """Return where the shares of these data holders are."""

    async def read(self, place: Place) -> list[Packed]:
        """Return the shares at a place, of those whose payload is stored."""


# What adding takes one thread, roughly, and what is not worth handing over: the processes take a
# second or more to start, and then do it in half the time or less.
_SECONDS_PER_SHARE: Final = 11e-6
_SECONDS_PER_COORDINATE: Final = 5e-9
_SMALL_SECONDS: Final = 2.0
_BYTES_PER_COORDINATE: Final = 8


class SharesMissing(Exception):
    """The store lacks the share of a holder in the cohort: its sum would be wrong."""


@dataclass(frozen=True)
class Adders:
    """Chooses the executor of a sum by the sum's size."""

    small: Summing
    large: Summing

    def for_sum(self, holders: int, dimension: int) -> Summing:
        """Return where to add up the shares of this many holders."""
        work = holders * (_SECONDS_PER_SHARE + dimension * _SECONDS_PER_COORDINATE)
        return self.small if work < _SMALL_SECONDS else self.large

    def close(self) -> None:
        """Let go of threads, processes and connections."""
        self.small.close()
        self.large.close()


async def sum_shares(
    stored: StoredShares,
    holders: BitMap,
    *,
    dimension: int,
    scheme: Sharing,
    summing: Summing,
) -> Uint64Vector:
    """Return the sum, shape (dimension,), of the shares of exactly these holders.

    Raises:
        SharesMissing: not all of them are stored.
        StorageUnavailable: try again later.
    """
    total = np.zeros(dimension, np.uint64)
    under_way: deque[asyncio.Task[Uint64Vector]] = deque()
    try:
        for place in await stored.places(holders) if holders else []:
            shares = await stored.read(place)
            if sum(each.shares for each in shares) != len(place.holders):
                raise SharesMissing
            if len(under_way) == summing.at_once:
                total = summation.plus(scheme, total, await under_way.popleft())
            added = add_shares(shares, dimension=dimension, scheme=scheme, summing=summing)
            under_way.append(asyncio.create_task(added))
        while under_way:
            total = summation.plus(scheme, total, await under_way.popleft())
    finally:
        for task in under_way:
            task.cancel()
    return total


async def add_shares(
    shares: Sequence[Packed], *, dimension: int, scheme: Sharing, summing: Summing
) -> Uint64Vector:
    """Return the sum, shape (dimension,), of shares that are in memory."""
    size = sum(each.shares for each in shares) * dimension * _BYTES_PER_COORDINATE
    return await summing.run_sized(size, _add, scheme, list(shares), dimension)


def _add(scheme: Sharing, shares: list[Packed], dimension: int) -> Uint64Vector:
    total = np.zeros(dimension, np.uint64)
    for each in shares:
        added = summation.add_packed(scheme, each.kind, each.payloads, dimension)
        total = summation.plus(scheme, total, added)
    return total
