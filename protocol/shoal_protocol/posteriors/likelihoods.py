"""Log densities of single targets given a regression's draws.

`targets` have shape (n,) and `predictors` shape (..., n).
"""

import math

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.models.regressions import rate

Floats = NDArray[np.float64]


def normal_log_density(targets: Floats, predictors: Floats, sd: Floats | float) -> Floats:
    """Return those of numbers about their predictors, of standard deviation `sd`."""
    standard = (targets - predictors) / sd
    return np.asarray(-0.5 * standard**2 - np.log(sd) - 0.5 * math.log(2.0 * math.pi))


def logistic_log_density(targets: Floats, predictors: Floats) -> Floats:
    """Return those of two classes, 1 and 0.

    Raises:
        ValueError: a target is neither.
    """
    if not np.isin(targets, (0.0, 1.0)).all():
        raise ValueError("targets of two classes must be 1, for the upper one, or 0")
    return np.asarray(-np.logaddexp(0.0, (1.0 - 2.0 * targets) * predictors))


def gamma_log_density(targets: Floats, predictors: Floats, dispersion: float) -> Floats:
    """Return those of positive numbers whose mean's logarithm is the predictor.

    Their variance is `dispersion` times the mean's square (McCullagh and Nelder 1989, section 8.2).

    Raises:
        ValueError: a target is not positive.
    """
    if np.any(targets <= 0.0):
        raise ValueError("targets must be positive")
    shape = 1.0 / dispersion
    logs = np.log(targets) - predictors
    constant = shape * math.log(shape) - math.lgamma(shape)
    return np.asarray(shape * (logs - rate(logs)) - np.log(targets) + constant)


def poisson_log_density(targets: Floats, predictors: Floats) -> Floats:
    """Return those of counts whose mean's logarithm is the predictor.

    Raises:
        ValueError: a target is no count.
    """
    if np.any((targets < 0.0) | (targets != np.rint(targets))):
        raise ValueError("targets must be counts")
    constants = np.array([math.lgamma(each + 1.0) for each in targets.tolist()])
    return np.asarray(targets * predictors - rate(predictors) - constants)
