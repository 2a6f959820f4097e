"""What drawing discrete Gaussian noise costs a coordinate, in CPU time of one process.

python -m bench.noise
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from shoal_holder.noise import discrete_gaussian

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
    print("nanoseconds a coordinate    scale   cost")
    for count in COUNTS:
        for scale in SCALES:
            nanoseconds = 1e9 * cost(partial(discrete_gaussian, scale, count), count)
            print(f"{count:>17,} at once {scale:12.3g} {nanoseconds:6.0f}")


if __name__ == "__main__":
    main()
