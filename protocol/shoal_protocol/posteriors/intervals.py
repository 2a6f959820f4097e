"""Central intervals of normal distributions."""

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def require_level(level: float) -> None:
    """Check the level of an interval.

    Raises:
        ValueError: `level` is not strictly between 0 and 1.
    """
    if not 0.0 < level < 1.0:
        raise ValueError("the level of an interval must lie strictly between 0 and 1")


def normal_intervals(mean: Floats, sd: Floats, level: float) -> Floats:
    """Return intervals that hold `level` of normals with this `mean` and `sd`, shape (n, 2).

    Raises:
        ValueError: `level` is not strictly between 0 and 1.
    """
    require_level(level)
    return normal_quantiles(mean, sd, 0.5 + level / 2.0)


def normal_quantiles(mean: Floats, sd: Floats, high: float) -> Floats:
    """Return the quantiles at 1 - `high` and `high` of normals, shape (n, 2)."""
    reach = NormalDist().inv_cdf(high) * sd
    return np.column_stack([mean - reach, mean + reach])
