"""Central intervals of normal distributions; it knows no posterior."""

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def quantile_of(level: float) -> float:
    """Return z such that a standard normal lies within +-z with probability `level`.

    Raises:
        ValueError: `level` is not strictly between 0 and 1.
    """
    if not 0.0 < level < 1.0:
        raise ValueError("the level of an interval must lie strictly between 0 and 1")
    return NormalDist().inv_cdf(0.5 + level / 2.0)


def normal_intervals(mean: Floats, sd: Floats, level: float) -> Floats:
    """Return intervals that hold `level` of normals with this `mean` and `sd`, shape (n, 2).

    Raises:
        ValueError: `level` is not strictly between 0 and 1.
    """
    reach = quantile_of(level) * sd
    return np.column_stack([mean - reach, mean + reach])
