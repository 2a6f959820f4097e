"""Linear regression in three rounds, in units that the first one measures.

The second round counts rows by their norm, the last releases moments of weighted rows. The mean is
that under a prior whose standard deviation all slopes share, unknown; intervals are the mean square
about it under a prior for each slope by itself, and widened for rows far out, which count less.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from bench.five_rounds.measured import Measured, measured
from bench.five_rounds.rounds import Noisy, Price, norm_bins, norm_counts, weighted_moments
from shoal_learning.quasi_likelihood import Coefficients, NoisyMoments, noise_aware_posterior

Floats = NDArray[np.float64]
Purpose = Literal["intervals", "prediction"]

SHARES: Final = (0.16, 0.04, 0.8)
"""Shares of mu^2 of the three rounds."""
PRIOR_SD: Final = 2.0
"""Of a slope, in spreads of the target for one of the feature."""

_SHARED_SDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
_LIMIT: Final = 0.7  # of the target's coordinate, over the radius of the features' ball
_REACHES: Final[dict[Purpose, float]] = {"intervals": 4.0, "prediction": 1.8}
_PULLS: Final[dict[Purpose, float]] = {"intervals": 0.6, "prediction": 0.15}
_SURELY: Final = 2.0


@dataclass(frozen=True)
class Fit:
    """Coefficients in the data's units, shape (k,), and their covariance, the intercept first."""

    mean: Floats
    covariance: Floats

    def holds(self, truth: Floats, *, reach: float) -> NDArray[np.bool_]:
        """Tell of which coefficients the interval of `reach` standard deviations holds `truth`."""
        within: NDArray[np.bool_] = (
            np.abs(self.mean - truth) <= np.sqrt(np.diagonal(self.covariance)) * reach
        )
        return within


def fit(values: Floats, bounds: Floats, price: Price, purpose: Purpose = "intervals") -> Fit:
    """Return the fit of the last of the columns, shape (n, m), on the others; `bounds` (m, 2)."""
    records, target = len(values), values[:, -1]
    found = measured(values, bounds, price, SHARES[0])
    features = found.rows(values[:, :-1])
    counted = norm_counts(features, price, SHARES[1])
    squared_radius = _squared_radius(counted, features.shape[1], records, purpose)
    whole = float(bounds[-1, 1] - bounds[-1, 0])
    scale = min(_REACHES[purpose] * float(found.spreads[-1]), whole)
    limit = _LIMIT * math.sqrt(squared_radius)
    released = weighted_moments(
        np.column_stack([np.ones(records), features]),
        np.clip((target - found.centres[-1]) / scale, -1.0, 1.0),
        squared_radius=squared_radius,
        limit=limit,
        price=price,
        share=SHARES[2],
    )
    moments = NoisyMoments(
        matrix=released.values / limit**2,
        diagonal_sd=released.sd * math.sqrt(2.0) / limit**2,
        off_diagonal_sd=released.sd / limit**2,
        records=float(records),
        records_sd=1.0,
        largest_square=squared_radius / limit**2,
    )
    coefficients = _coefficients(moments, found, limit * float(found.spreads[-1]) / scale, purpose)
    pulled = 0.5 * _PULLS["intervals"] * min(1.0, len(bounds) / squared_radius) * coefficients.mean
    pulled[0] = 0.0
    transform = _to_data_units(found, scale / limit)
    mean = transform @ coefficients.mean
    mean[0] += found.centres[-1]
    covariance = transform @ (coefficients.covariance + np.diag(pulled**2)) @ transform.T
    return Fit(mean, covariance)


def _squared_radius(counted: Noisy, features: int, records: int, purpose: Purpose) -> float:
    """Return the ball for which noise, and what rows beyond it may pull, are least together."""
    tails = np.cumsum(counted.values[::-1])[::-1]
    lengths = np.arange(len(tails), 0, -1)
    sure = np.flatnonzero(tails > _SURELY * counted.sd * np.sqrt(lengths))
    kept = np.maximum(counted.values, 0.0)
    kept[(int(sure[-1]) if sure.size else 0) + 1 :] = 0.0
    squares = norm_bins(features) ** 2
    whole = max(float(kept @ squares), 1e-9)
    noise = counted.sd * math.sqrt(SHARES[1] / SHARES[2]) / records
    costs = []
    for square in squares.tolist():
        beyond = float(kept @ np.maximum(squares - square, 0.0)) / whole
        spread = noise * (1.0 + square) * (1.0 + _LIMIT**2)
        costs.append(spread**2 + (_PULLS[purpose] * beyond) ** 2)
    return 1.0 + float(squares[int(np.argmin(costs))])


def _coefficients(
    moments: NoisyMoments, found: Measured, unit: float, purpose: Purpose
) -> Coefficients:
    """Return the mean under a shared prior; for "intervals" with the mean square error about it.

    `unit` is a slope of one spread of the target for one of the feature.
    """
    slopes = len(moments.matrix) - 2
    each = [
        noise_aware_posterior(moments, unit * np.append(1.0, np.full(slopes, sd)))
        for sd in _SHARED_SDS
    ]
    logs = np.array([one.log_evidence for one in each])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    means = np.array([one.mean for one in each])
    mean = weights @ means
    if purpose == "intervals":
        own = unit * np.append(1.0, PRIOR_SD * found.looseness[:-1])
        wide = noise_aware_posterior(moments, own)
        covariance = wide.covariance + np.outer(mean - wide.mean, mean - wide.mean)
    else:
        away = means - mean
        covariance = np.tensordot(weights, np.array([one.covariance for one in each]), 1)
        covariance = covariance + away.T @ (weights[:, None] * away)
    variance = float(weights @ np.array([one.residual_sd**2 for one in each]))
    return Coefficients(
        mean=mean, covariance=covariance, residual_sd=variance**0.5, log_evidence=float(logs.max())
    )


def _to_data_units(found: Measured, over: float) -> Floats:
    slopes = over / found.spreads[:-1]
    transform = np.diag(np.append(over, slopes))
    transform[0, 1:] = -found.centres[:-1] * slopes
    return transform


def ada_ssp(values: Floats, bounds: Floats, price: Price) -> Floats:
    """Return AdaSSP's coefficients at the same bounds and price, the intercept first.

    Wang 2018 (arXiv:1803.02596), algorithm 2, its three releases composed as one Gaussian.
    """
    middles, halves = bounds.mean(axis=1), (bounds[:, 1] - bounds[:, 0]) / 2.0
    boxed = np.clip((values - middles) / halves, -1.0, 1.0)
    rows = np.column_stack([np.ones(len(boxed)), boxed[:, :-1]])
    size = rows.shape[1]
    sd = price.noise_sd(math.sqrt(2.0) * size, 1.0 / 3.0)
    gram = rows.T @ rows
    least = float(np.linalg.eigvalsh(gram)[0]) + float(price.generator.normal(0.0, sd))
    ridge = sd / math.sqrt(2.0) * math.sqrt(size * math.log(2.0 * size**2 / 0.05))
    ridge = max(0.0, ridge - max(least - 1.645 * sd, 0.0))
    upper = np.triu(price.generator.normal(0.0, sd / math.sqrt(2.0), gram.shape), 1)
    noise = upper + upper.T + np.diag(price.generator.normal(0.0, sd, size))
    cross_sd = price.noise_sd(2.0 * math.sqrt(size), 1.0 / 3.0)
    cross = rows.T @ boxed[:, -1] + price.generator.normal(0.0, cross_sd, size)
    found = np.linalg.solve(gram + noise + ridge * np.eye(size), cross) * halves[-1]
    slopes = found[1:] / halves[:-1]
    return np.append(found[0] + middles[-1] - slopes @ middles[:-1], slopes)
