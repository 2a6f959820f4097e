"""Milliseconds that a sum takes where a node may add it up: a thread, or processes.

    python -m bench.summing [--clients 10000 300000] [--dimension 66]

The processes' first sum includes starting them. Nothing is read from a database here.
"""

import argparse
import asyncio
import secrets
import time

from pyroaring import BitMap

from shoal_compute.executors import Summing, open_summing
from shoal_compute.summing import Adders, sum_shares
from shoal_protocol.sharing.additive import AdditiveSharing
from shoal_protocol.sharing.shares import Share, ShareKind


async def measure(summing: Summing, shares: list[Share], dimension: int) -> float:
    """Return the milliseconds of one sum."""

    async def read(clients: list[int]) -> list[Share]:
        return [shares[client] for client in clients]

    begun = time.perf_counter()
    await sum_shares(
        read,
        BitMap(range(len(shares))),
        dimension=dimension,
        scheme=AdditiveSharing(),
        summing=summing,
    )
    return (time.perf_counter() - begun) * 1000


async def compare(clients: int, dimension: int) -> None:
    """Measure and print one line."""
    shares = [Share(ShareKind.SEED, secrets.token_bytes(32)) for _ in range(clients)]
    adders = Adders(Summing(), open_summing("processes"))
    try:
        thread = await measure(adders.small, shares, dimension)
        first = await measure(adders.large, shares, dimension)
        processes = await measure(adders.large, shares, dimension)
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
