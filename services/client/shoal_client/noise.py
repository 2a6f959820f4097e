"""Integer noise from OpenDP's exact discrete Gaussian; knows neither data nor budgets.

OpenDP samples the distribution exactly (Canonne, Kamath and Steinke 2020, arXiv:2004.00010) from
the operating system's cryptographic generator. No floating-point noise is ever drawn.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

from shoal_protocol.encoding import Int64Vector

NoiseSampler = Callable[[float, int], Int64Vector]
"""(scale, count) -> `count` independent integers, shape (count,), of discrete Gaussian noise."""

LARGEST_SCALE: Final = 2.0**56
"""A draw saturates at 2^63, which is 128 scales away: never reached."""

enable_features("contrib")  # not opendp.prelude, which would load scikit-learn


def discrete_gaussian(scale: float, count: int) -> Int64Vector:
    """Draw `count` integers, each x with probability proportional to exp(-x^2 / (2 scale^2)).

    Raises:
        ValueError: `scale` is not within (0, LARGEST_SCALE], or `count` is not positive.
    """
    if not (math.isfinite(scale) and 0.0 < scale <= LARGEST_SCALE):
        raise ValueError("a noise scale must be positive, finite and at most 2^56")
    if count < 1:
        raise ValueError("a count of noise draws must be positive")
    # "i64" must be spelled out: for Python's int OpenDP takes 32 bits, and saturates there.
    mechanism = make_gaussian(
        vector_domain(atom_domain(T="i64"), size=count), l2_distance(T="f64"), scale
    )
    return np.array(mechanism([0] * count), dtype=np.int64)
