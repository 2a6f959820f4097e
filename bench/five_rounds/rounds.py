"""What rounds of a regression would release: sums in floats with the right noise, and no privacy.

Neighbours differ by one replaced record. A round costs mu, and its noise has the standard deviation
sensitivity / mu, times what clients more than lost and colluding ones add. Sensitivities in L2:

- columns (sum u, sum u^2), u in [-1, 1]: 2 for each column, for (u - v)^2 (1 + (u + v)^2) is at
  most 4: with s = |u + v|, |u - v| is at most 2 - s, and (2 - s)^2 (1 + s^2) falls in s.
- norms, one bin a record: sqrt(2).
- moments w w' of rows within a ball of squared radius L, products off the diagonal times sqrt(2):
  sqrt(2) L, so that noise is sqrt(2) L / mu on the diagonal and L / mu off it.
- scores s and s^2 / 2, |s| at most 1, and whether a residual was cut, with twice the noise:
  sqrt(4 + 1/4), for with p = |s_j| and r = |s'_j| a coordinate adds (p + r)^2 (1 + (p - r)^2 / 4),
  at most 2 (p^2 + r^2), and these sum to 4 at most.

Rows are weighted by their features alone (Mallows weights: Hampel et al. 1986, section 6.3), so a
weighted regression has no bias; what depends on the target, such as cutting whole gradients, has.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.five_rounds.families import Family, mean_of, weight_of

Floats = NDArray[np.float64]

BINS: Final = 27
_RATIO: Final = 1.15
_CUT_SCALE: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class Price:
    """What all rounds cost, and how much more noise there is than one trusted party's."""

    mu: float
    excess: float
    generator: np.random.Generator

    def noise_sd(self, sensitivity: float, share: float) -> float:
        """Return the noise of a round that has this share of mu^2."""
        return sensitivity * self.excess / (math.sqrt(share) * self.mu)


@dataclass(frozen=True)
class Noisy:
    """A sum and the standard deviation of its noise, of moments off the diagonal."""

    values: Floats
    sd: float


def column_moments(boxed: Floats, price: Price, share: float) -> Noisy:
    """Return noisy means and mean squares, shape (2, m), of columns in [-1, 1], shape (n, m)."""
    count, columns = boxed.shape
    sd = price.noise_sd(2.0 * math.sqrt(columns), share)
    sums = np.stack([boxed.sum(axis=0), np.sum(boxed**2, axis=0)])
    return Noisy((sums + price.generator.normal(0.0, sd, sums.shape)) / count, sd / count)


def norm_bins(columns: int) -> Floats:
    """Return the largest norm of each bin, shape (27,), in spreads."""
    return np.asarray(0.5 * math.sqrt(columns) * _RATIO ** np.arange(BINS))


def norm_counts(features: Floats, price: Price, share: float) -> Noisy:
    """Return how many rows are in each bin of norms, shape (27,)."""
    largest = norm_bins(features.shape[1])
    places = np.searchsorted(largest, np.linalg.norm(features, axis=1)).clip(max=BINS - 1)
    counts = np.bincount(places, minlength=BINS)
    sd = price.noise_sd(math.sqrt(2.0), share)
    return Noisy(counts + price.generator.normal(0.0, sd, BINS), sd)


def weighted_moments(
    rows: Floats, target: Floats, *, squared_radius: float, limit: float, price: Price, share: float
) -> Noisy:
    """Return noisy moments of (f x, f t y), shape (p + 1, p + 1), the target y in [-1, 1].

    f = min(1, radius / |x|); t is `limit`.
    """
    factors = np.sqrt(np.minimum(1.0, squared_radius / np.sum(rows**2, axis=1)))
    whole = np.column_stack([rows * factors[:, None], limit * factors * target])
    sd = price.noise_sd(math.sqrt(2.0) * (squared_radius + limit**2), share)
    upper = np.triu(price.generator.normal(0.0, sd / math.sqrt(2.0), (len(whole.T),) * 2), 1)
    noise = upper + upper.T + np.diag(price.generator.normal(0.0, sd, len(whole.T)))
    return Noisy(whole.T @ whole + noise, sd / math.sqrt(2.0))


@dataclass(frozen=True)
class Scores:
    """Sums of s, shape (p,), and of s^2, shape (p,), in spreads, and the share that was cut."""

    scores: Floats
    squares: Floats
    sd: float
    squares_sd: float
    cut_share: float


def scores(
    family: Family,
    rows: Floats,
    target: Floats,
    *,
    point: Floats,
    dispersion: float,
    squared_radius: float,
    cut: float,
    price: Price,
    share: float,
) -> Scores:
    """Return the scores f^2 e x at `point`, e the weighted residuals, cut to +-`cut`."""
    means = mean_of(family, rows @ point)
    residuals = (target - means) * weight_of(family, means, dispersion)
    weights = np.minimum(1.0, squared_radius / np.sum(rows**2, axis=1))
    unit = math.sqrt(squared_radius) * cut
    each = rows * (weights * np.clip(residuals, -cut, cut) / unit)[:, None]
    sd = price.noise_sd(math.sqrt(4.0 + _CUT_SCALE**-2.0), share)
    size = rows.shape[1]
    found = each.sum(axis=0) + price.generator.normal(0.0, sd, size)
    squares = 0.5 * np.sum(each**2, axis=0) + price.generator.normal(0.0, sd, size)
    beyond = np.sum(np.abs(residuals) > cut) + price.generator.normal(0.0, _CUT_SCALE * sd)
    return Scores(
        scores=found * unit,
        squares=2.0 * squares * unit**2,
        sd=sd * unit,
        squares_sd=2.0 * sd * unit**2,
        cut_share=float(beyond) / len(rows),
    )
