"""How a round's CPU seconds grow with clients, coordinates and Compute nodes; and 10^8 on paper.

    python -m bench.table1.growth [--nodes 3 6 12] [--clients 300 1000 3000] [--json FILE]

Nodes and aggregator, as `bench.table1`'s row `server`, but for what comes
after the last envelope. An exponent is the slope of a straight line through logarithms. From the
costs of a share and of a coordinate follow those of 10^8 clients, as if all grew so.
"""

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.command import options, write
from bench.table1.services import Services
from shoal_protocol.sharing.received import envelope_size
from shoal_protocol.sharing.shares import ShareKind

_DIMENSIONS: Final = (10, 100, 1_000, 10_000)
_MIDDLE: Final = 100  # coordinates, where clients or nodes vary
_MANY: Final = 10**8
_WIDE: Final = 1_000
_NODES: Final = 10
_AXES: Final = ("nodes", "clients", "coordinates")
_CORE_HOUR: Final = 0.04  # US dollars for a rented core

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
                        found[many, n, d] = cost.cpu_seconds - cost.empty[0]
                        print((many, n, d), round(found[many, n, d], 2), flush=True)
    return found


def unit_costs(found: Mapping[Point, float]) -> dict[str, float]:
    """Return microseconds of a share, and nanoseconds of a coordinate, by least squares."""
    points = np.array(list(found), dtype=np.float64)
    shares, coordinates = points[:, 0] * points[:, 1], points[:, 0] * points[:, 1] * points[:, 2]
    seconds = np.array(list(found.values()))
    design = np.column_stack([shares, coordinates]) / np.maximum(seconds, 1e-3)[:, None]
    share, coordinate = np.linalg.lstsq(design, np.ones(len(seconds)), rcond=None)[0]
    return {"share_microseconds": 1e6 * share, "coordinate_nanoseconds": 1e9 * coordinate}


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


def on_paper(units: Mapping[str, float]) -> dict[str, float]:
    """Return what a round of 10^8 clients with 1,000 coordinates takes at ten nodes."""
    shares = float(_MANY * _NODES)
    seconds = shares * (
        units["share_microseconds"] / 1e6 + _WIDE * units["coordinate_nanoseconds"] / 1e9
    )
    seed, vector = (envelope_size(kind, _WIDE + 1) for kind in (ShareKind.SEED, ShareKind.VECTOR))
    sent = float(_MANY * (vector + (_NODES - 1) * seed))
    return {
        "core_hours": seconds / 3600,
        "cores_of_each_node_in_an_hour": seconds / 3600 / _NODES,
        "terabytes_received": sent / 1e12,
        "rows_a_node": float(_MANY),
        "gigabytes_a_node": sent / 1e9 / _NODES,
        "dollars_of_cores": seconds / 3600 * _CORE_HOUR,
    }


def main() -> None:
    """Measure, fit, write and print."""
    asked = options(
        __doc__,
        nodes=[3, 6, 12],
        clients=[300, 1_000, 3_000],
        dimensions=list(_DIMENSIONS),
        json=Path("build/bench/growth.json"),
    )
    found = asyncio.run(measure(asked.nodes, asked.clients, asked.dimensions))
    units = unit_costs(found)
    written: dict[str, Any] = {
        "exponents": exponents(found),
        "unit_costs": units,
        "10^8 clients, d = 1,000": on_paper(units),
        "cpu_seconds": {" x ".join(map(str, point)): each for point, each in found.items()},
    }
    write(written, asked.json)
    print(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
