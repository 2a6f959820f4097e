"""What drawing noise costs a coordinate, against NumPy's floating point.

    python -m bench.noise

CPU seconds of one process. NumPy's normal numbers are the floor: neither exact nor cryptographic.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

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


def main() -> None:
    """Print a table of nanoseconds a coordinate."""
    generator = np.random.default_rng(1)
    print("nanoseconds a coordinate    scale   ours   NumPy's normal")
    for count in COUNTS:
        for scale in SCALES:
            ours = cost(partial(discrete_gaussian, scale, count), count)
            floor = cost(partial(generator.normal, 0.0, scale, count), count)
            print(f"{count:>17,} at once {scale:12.3g} {1e9 * ours:6.0f} {1e9 * floor:10.1f}")
    part = LaplacePart(scale=2.0**40, parties=500, slots=100)
    share = cost(partial(exact_noise, part, 10_000), 10_000)
    print(f"a Laplace share of 100 of 500 slots: {1e9 * share:.0f} ns a coordinate")


if __name__ == "__main__":
    main()
