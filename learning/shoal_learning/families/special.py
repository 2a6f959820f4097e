"""Special functions of arrays, in numpy alone."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SHIFT: Final = 8  # Stirling's series is used from here on
_STIRLING: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)


def log_gamma(x: Floats) -> Floats:
    """Return ln Gamma(x) for x > 0, elementwise, to a relative error of about 1e-14.

    Stirling's series (Abramowitz and Stegun 6.1.41) after moving x up by eight.
    """
    x = np.asarray(x, dtype=np.float64)
    product = x.copy()
    for step in range(1, _SHIFT):
        product = product * (x + step)
    moved = np.where(x < _SHIFT, x + _SHIFT, x)
    inverse = 1.0 / moved
    series = np.zeros_like(x)
    for coefficient in reversed(_STIRLING):
        series = series * inverse**2 + coefficient
    value = (moved - 0.5) * np.log(moved) - moved + 0.5 * math.log(2.0 * math.pi) + series * inverse
    with np.errstate(over="ignore"):
        return np.asarray(np.where(x < _SHIFT, value - np.log(product), value))


def log_sum_exp(values: Floats, axis: int) -> Floats:
    """Return ln sum exp(values) along an axis; minus infinity where all terms are zero."""
    top = np.max(values, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.sum(np.exp(values - top), axis=axis))
    return np.asarray(total + np.squeeze(top, axis=axis))


def normal_cdf(x: Floats) -> Floats:
    """Return the distribution function of the standard normal, elementwise."""
    return np.array([0.5 * math.erfc(-each / math.sqrt(2.0)) for each in np.ravel(x)]).reshape(
        np.shape(x)
    )


def normal_density(x: Floats) -> Floats:
    """Return the density of the standard normal, elementwise."""
    return np.asarray(np.exp(-0.5 * np.square(x)) / math.sqrt(2.0 * math.pi))
