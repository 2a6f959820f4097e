"""How well numbers are predicted, on scales where 1 is perfect; it knows no estimator."""

import numpy as np

from shoal_client.estimators.columns import FloatVector


def explained(rest: float, whole: float) -> float:
    """Return 1 - rest / whole; of targets that are all the same, 1 if nothing is left, else 0."""
    if whole == 0.0:
        return float(rest == 0.0)
    return 1.0 - rest / whole


def poisson_deviance(counts: FloatVector, expected: FloatVector) -> float:
    """Return twice the sum of y log(y / mu) - y + mu (McCullagh and Nelder 1989, section 2.3)."""
    positive = counts > 0.0
    logs = counts[positive] * np.log(counts[positive] / expected[positive])
    return float(2.0 * (logs.sum() - np.sum(counts - expected)))
