"""How a round's CPU seconds grow with clients, coordinates and Compute nodes; and 10^8 on paper.

    python -m bench.table1.growth [--nodes 3 6 12] [--clients 300 1000 3000] [--json FILE]

Nodes and aggregator, as `bench.table1`'s row `server`, but for what comes
after the last envelope. An exponent is the slope of a straight line through logarithms. The bytes
that 10^8 clients would send follow from the sizes of envelopes.
"""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.command import options, show, write
from bench.table1.services import Services
from shoal_protocol.sharing.received import envelope_size
from shoal_protocol.sharing.shares import ShareKind

_MIDDLE: Final = 100  # coordinates, where clients or nodes vary
_AXES: Final = ("nodes", "clients", "coordinates")

Point = tuple[int, int, int]
"""Nodes, clients, coordinates."""


async def measure(
    nodes: Sequence[int], clients: Sequence[int], dimensions: Sequence[int]
) -> dict[Point, float]:
    """Return CPU seconds from the first envelope to the last."""
    found = {}
    for many in nodes:
        with tempfile.TemporaryDirectory() as directory:
            running = Services.running(Path(directory), nodes=many, holders=max(clients))
            async with running as services:
                await services.round(_MIDDLE, 2)
                for d in dimensions if many == max(nodes) else (_MIDDLE,):
                    for n in clients if d == _MIDDLE else (max(clients),):
                        cost = (await services.round(d, n))["server"]
                        found[many, n, d] = cost.cpu_seconds - cost.empty
                        print((many, n, d), round(found[many, n, d], 2), flush=True)
    return found


def line(found: Mapping[Point, float], axis: int) -> list[tuple[int, float]]:
    """Return what was measured along one of the axes, in order, the others being fixed."""
    largest = [max(point[each] for point in found) for each in range(3)]
    fixed = {0: largest[0], 1: largest[1], 2: _MIDDLE}
    del fixed[axis]
    return sorted(
        (point[axis], seconds)
        for point, seconds in found.items()
        if all(point[each] == value for each, value in fixed.items())
    )


def exponents(found: Mapping[Point, float]) -> dict[str, float]:
    """Return the slopes of logarithms against those of nodes, clients and coordinates."""
    slopes = {}
    for axis, name in enumerate(_AXES):
        x, y = np.log(np.array(line(found, axis))).T
        slopes[name] = float(np.polyfit(x, y, 1)[0])
    return slopes


def sent_bytes(clients: int, entries: int, nodes: int) -> float:
    """Return the bytes of all envelopes in a round of so many clients, coordinates and nodes."""
    seed, vector = (envelope_size(kind, entries + 1) for kind in (ShareKind.SEED, ShareKind.VECTOR))
    return float(clients * (vector + (nodes - 1) * seed))


def main() -> None:
    """Measure, fit, write and print."""
    asked = options(
        __doc__,
        nodes=[3, 6, 12],
        clients=[300, 1_000, 3_000],
        dimensions=[10, 100, 1_000, 10_000],
        json=Path("build/bench/growth.json"),
    )
    found = asyncio.run(measure(asked.nodes, asked.clients, asked.dimensions))
    written: dict[str, Any] = {
        "exponents": exponents(found),
        "terabytes sent, 10^8 clients, d = 1,000, 10 nodes": sent_bytes(10**8, 1_000, 10) / 1e12,
        "cpu_seconds": {" x ".join(map(str, point)): each for point, each in found.items()},
    }
    write(written, asked.json)
    show(written)


if __name__ == "__main__":
    main()
