"""The families of generalised linear models: how means change, and how targets scatter.

Means and weights are the query's: `shoal_protocol.queries.scores`.
"""

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.scores import Family

FloatArray = NDArray[np.float64]


def slope_of(family: Family, means: FloatArray) -> FloatArray:
    """Return the derivatives of means by their predictors."""
    return means * (1.0 - means) if family == "logistic" else means


def variance_of(family: Family, means: FloatArray, dispersion: float) -> FloatArray:
    """Return the variances of targets with these means; of a scattered count m + a m^2.

    Of a positive number they are m^2: in units of its dispersion.
    """
    match family:
        case "logistic":
            return means * (1.0 - means)
        case "poisson":
            return means
        case "negative_binomial":
            return means + dispersion * means**2
        case "gamma":
            return means**2
