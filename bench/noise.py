"""What drawing noise costs a coordinate, against OpenDP's exact sampler and NumPy's floating point.

    python -m bench.noise

CPU seconds of one process. NumPy's normal numbers are the floor: neither exact nor cryptographic.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

from shoal_holder.noise import discrete_gaussian, exact_noise
from shoal_protocol.privacy.mechanisms import LaplacePart

SCALES: Final = (4.0, 20.5, 2.0**31, 2.0**50)
COUNTS: Final = (10, 1000, 100_000)
_SECONDS: Final = 0.3  # how long each is repeated


def cost(draw: Callable[[], object], count: int) -> float:
    """Return CPU seconds a coordinate."""
    draw()
    began, times = time.process_time(), 0
    while time.process_time() - began < _SECONDS:
        draw()
        times += 1
    return (time.process_time() - began) / times / count


def opendp(scale: float, count: int) -> Callable[[], object]:
    """Return OpenDP's sampler of so many."""
    domain = vector_domain(atom_domain(T="i64"), size=count)
    mechanism = make_gaussian(domain, l2_distance(T="f64"), scale)
    zeros = [0] * count
    return partial(mechanism, zeros)


def main() -> None:
    """Print a table of nanoseconds a coordinate."""
    enable_features("contrib")
    generator = np.random.default_rng(1)
    print("nanoseconds a coordinate    scale   ours   OpenDP   ratio   NumPy's normal")
    for count in COUNTS:
        for scale in SCALES:
            ours = cost(partial(discrete_gaussian, scale, count), count)
            floor = cost(partial(generator.normal, 0.0, scale, count), count)
            other = cost(opendp(scale, count), count)
            print(
                f"{count:>17,} at once {scale:12.3g} {1e9 * ours:6.0f} {1e9 * other:8.0f} "
                f"{other / ours:7.0f} {1e9 * floor:10.1f}"
            )
    part = LaplacePart(scale=2.0**40, parties=500, slots=100)
    share = cost(partial(exact_noise, part, 10_000), 10_000)
    print(f"a Laplace share of 100 of 500 slots: {1e9 * share:.0f} ns a coordinate")


if __name__ == "__main__":
    main()
