"""Milliseconds that a sum takes where a node may add it up: a thread, or processes.

    python -m bench.summing [--clients 10000 300000] [--dimension 66]

The processes' first sum includes starting them. Nothing is read from a database here.
"""

import argparse
import asyncio
import secrets
import time

from pyroaring import BitMap

from shoal_compute.bulks import Packed, Place
from shoal_compute.executors import Summing, open_summing
from shoal_compute.summing import Adders, sum_shares
from shoal_protocol.sharing.additive import AdditiveSharing
from shoal_protocol.sharing.shares import SEED_BYTES, ShareKind


class Made:
    """Shares that are in memory, a thousand at each place."""

    def __init__(self, clients: int) -> None:
        self._shares = [
            Packed(ShareKind.SEED, len(some), secrets.token_bytes(SEED_BYTES * len(some)))
            for some in (range(clients)[start : start + 1000] for start in range(0, clients, 1000))
        ]

    async def places(self, holders: BitMap) -> list[Place]:
        """Return all places."""
        size = [each.shares for each in self._shares]
        return [Place(number, BitMap(range(count))) for number, count in enumerate(size)]

    async def read(self, place: Place) -> list[Packed]:
        """Return the shares at a place."""
        return [self._shares[place.bulk or 0]]


async def measure(summing: Summing, shares: Made, clients: int, dimension: int) -> float:
    """Return the milliseconds of one sum."""
    begun = time.perf_counter()
    await sum_shares(
        shares,
        BitMap(range(clients)),
        dimension=dimension,
        scheme=AdditiveSharing(),
        summing=summing,
    )
    return (time.perf_counter() - begun) * 1000


async def compare(clients: int, dimension: int) -> None:
    """Measure and print one line."""
    shares = Made(clients)
    adders = Adders(Summing(), open_summing("processes"))
    try:
        thread = await measure(adders.small, shares, clients, dimension)
        first = await measure(adders.large, shares, clients, dimension)
        processes = await measure(adders.large, shares, clients, dimension)
        chosen = "thread" if adders.for_sum(clients, dimension) is adders.small else "processes"
    finally:
        adders.close()
    print(
        f"N = {clients}, d = {dimension}: thread {thread:.0f} ms, processes {processes:.0f} ms "
        f"(the first time {first:.0f} ms); a node chooses: {chosen}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[10_000, 300_000])
    parser.add_argument("--dimension", type=int, default=66)
    arguments = parser.parse_args()
    for clients in arguments.clients:
        asyncio.run(compare(clients, arguments.dimension))


if __name__ == "__main__":
    main()
