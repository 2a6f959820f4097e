"""Numbers in the place of two coordinates' correlations that are none."""

import base64
import math
from collections.abc import Mapping, Sequence

import numpy as np

NOT_CORRELATIONS: Mapping[str, Sequence[float]] = {
    "a correlation that is no number": (1.0, math.nan, 0.8),
    "a correlation that is infinite": (1.0, math.inf, 0.8),
    "a correlation so large that its square is infinite": (1.0, 1e300, 0.8),
    "a correlation above one": (1.0, 1.25, 0.0),
    "correlations of variance other than one": (1.0, -0.6, 0.75),
    "a root of correlations that is below zero": (1.0, -0.6, -0.8),
    "a correlation too few": (1.0, -0.6),
    "a correlation too many": (1.0, -0.6, 0.8, 0.0),
    "correlations of nothing": (),
}


def doubles(values: Sequence[float]) -> str:
    """Return the base64 of little-endian doubles."""
    return base64.b64encode(np.array(values, dtype="<f8").tobytes()).decode()
