"""Scores of predictions, on scales where 1 is perfect."""

import numpy as np

from shoal.estimators.columns import FloatVector


def r_squared(observed: FloatVector, expected: FloatVector) -> float:
    """Return R^2, the coefficient of determination, of targets and predictions, shape (n,)."""
    rest = np.sum((observed - expected) ** 2)
    return _explained(float(rest), float(np.sum((observed - observed.mean()) ** 2)))


def d_squared(observed: FloatVector, expected: FloatVector) -> float:
    """Return D^2, the share of the Poisson deviance that is explained; shapes (n,).

    Raises:
        ValueError: a count is negative.
    """
    if (observed < 0.0).any():
        raise ValueError("counts must not be negative")
    return _explained(
        _poisson_deviance(observed, expected),
        _poisson_deviance(observed, np.full_like(observed, observed.mean())),
    )


def d_squared_of_gamma(observed: FloatVector, expected: FloatVector) -> float:
    """Return D^2, the share of the gamma deviance that is explained; shapes (n,).

    Raises:
        ValueError: a number is not positive.
    """
    if (observed <= 0.0).any():
        raise ValueError("numbers must be positive")
    return _explained(
        _gamma_deviance(observed, expected),
        _gamma_deviance(observed, np.full_like(observed, observed.mean())),
    )


def _explained(rest: float, whole: float) -> float:
    """Return 1 - rest / whole; of targets that are all the same, 1 if nothing is left, else 0."""
    if whole == 0.0:
        return float(rest == 0.0)
    return 1.0 - rest / whole


def _gamma_deviance(numbers: FloatVector, expected: FloatVector) -> float:
    """Return twice the sum of y / mu - 1 - log(y / mu) (McCullagh and Nelder 1989, section 2.3)."""
    return float(2.0 * np.sum(numbers / expected - 1.0 - np.log(numbers) + np.log(expected)))


def _poisson_deviance(counts: FloatVector, expected: FloatVector) -> float:
    """Return twice the sum of y log(y / mu) - y + mu (McCullagh and Nelder 1989, section 2.3)."""
    positive = counts > 0.0
    logs = counts[positive] * np.log(counts[positive] / expected[positive])
    return float(2.0 * (logs.sum() - np.sum(counts - expected)))
