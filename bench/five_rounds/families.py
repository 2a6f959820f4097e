"""The families of generalised linear models: link, mean and working residual; pure numbers.

The predictor of a record is eta = x'b. Logistic and linear models have their canonical
link, the others the logarithm (McCullagh and Nelder 1989, section 2.2).
"""

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

Family = Literal["normal", "logistic", "poisson", "negative_binomial"]
"""What a target is: a number, one of two classes, a count, a scattered count."""

LARGEST_PREDICTOR: Final = 30.0
"""Beyond it a predictor is cut: its mean is a float, and far from any data."""


def mean_of(family: Family, predictors: FloatArray) -> FloatArray:
    """Return the means of targets with these predictors, any shape."""
    if family == "normal":
        return predictors
    cut = np.clip(predictors, -LARGEST_PREDICTOR, LARGEST_PREDICTOR)
    if family == "logistic":
        return np.asarray(0.5 * (1.0 + np.tanh(0.5 * cut)))
    return np.exp(cut)


def slope_of(family: Family, means: FloatArray) -> FloatArray:
    """Return the derivatives of means by their predictors."""
    if family == "normal":
        return np.ones_like(means)
    return means * (1.0 - means) if family == "logistic" else means


def weight_of(family: Family, means: FloatArray, dispersion: float) -> FloatArray:
    """Return what a residual y - mean is multiplied by, so that its spread stays about the same.

    It depends on the features alone, at the point of a round, so whatever it is, sums of weighted
    residuals are 0 at the truth: 1 / (1 + a m) of scattered counts with dispersion a, 1 / sqrt(1 +
    m / a) of counts of about a.
    """
    match family:
        case "negative_binomial":
            return 1.0 / (1.0 + dispersion * means)
        case "poisson":
            return 1.0 / np.sqrt(1.0 + means / dispersion)
        case _:
            return np.ones_like(means)


def variance_of(family: Family, means: FloatArray, dispersion: float) -> FloatArray:
    """Return the variances of targets with these means; `dispersion` is the family's own.

    Of a number its variance, of a scattered count a in m + a m^2.
    """
    match family:
        case "normal":
            return np.full_like(means, dispersion)
        case "logistic":
            return means * (1.0 - means)
        case "poisson":
            return means
        case "negative_binomial":
            return means + dispersion * means**2
