"""What threshold sharing costs beside additive sharing: time and bytes of splitting and adding.

    python -m bench.sharing [--repeats 200]

For each scheme: the time in which one client splits its vector, the bytes of its M envelopes, the
time in which one node adds one client's share (seeds and vectors as they come), and the time in
which a total is opened. Medians, in one thread, without sealing, signing or transport.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from shoal_protocol.sharing import summation
from shoal_protocol.sharing.received import envelope_size
from shoal_protocol.sharing.schemes import ADDITIVE, Sharing
from shoal_protocol.sharing.threshold import ThresholdSharing

DIMENSIONS: Final = (66, 10_011)
NODES: Final = (3, 5)  # with thresholds of 2 and 3


def median_microseconds(work: Callable[[int], object], repeats: int) -> float:
    """Return the median time of `work`, which is handed the number of its run."""
    times = []
    for number in range(repeats):
        begun = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1e6


def measure(scheme: Sharing, nodes: int, dimension: int, repeats: int) -> dict[str, float]:
    """Return the figures of one scheme, times in microseconds."""
    values = np.random.default_rng(1).integers(-(2**40), 2**40, dimension)
    clients = 4 * nodes

    def split(client: int) -> object:
        secret = scheme.encode(values)
        return scheme.split(secret, holder=client, nodes=nodes, random_bytes=os.urandom)

    shares = [
        scheme.split(scheme.encode(values), holder=client, nodes=nodes, random_bytes=os.urandom)
        for client in range(clients)
    ]
    sums = {
        node: summation.add(scheme, [each[node] for each in shares], dimension)
        for node in range(nodes)
    }
    of_one_node = [each[0] for each in shares]
    return {
        "split, µs": median_microseconds(split, repeats),
        "envelopes, bytes": sum(envelope_size(share.kind, dimension) for share in shares[0]),
        "add one share, µs": median_microseconds(
            lambda _: summation.add(scheme, of_one_node, dimension), max(1, repeats // clients)
        )
        / clients,
        "open, µs": median_microseconds(
            lambda _: summation.combine(scheme, sums, nodes=nodes), repeats
        ),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    for nodes in NODES:
        threshold = ThresholdSharing(threshold=nodes // 2 + 1)
        for dimension in DIMENSIONS:
            plain = measure(ADDITIVE, nodes, dimension, repeats)
            by_threshold = measure(threshold, nodes, dimension, repeats)
            print(f"\nM = {nodes}, d = {dimension:,}; threshold {threshold.threshold}")
            for what, figure in by_threshold.items():
                ratio = f"{figure / plain[what]:6.2f}"
                print(f"{what:18} additive {plain[what]:8,.0f} threshold {figure:8,.0f} {ratio}")


if __name__ == "__main__":
    main()
