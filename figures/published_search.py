"""The published search for projection thresholds on auxiliary data, batched.

Step 3 of Algorithm 2 as published: the noise is scaled by the fourth power of the sensitivity
instead of the sensitivity, and the rows of x are given length 1, which Figure 2's data are not.
Only the number of records, the number of features and the price go in, so one search serves all
splits; the authors searched again for every split.
"""

import math
from functools import cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Floats = NDArray[np.float64]

GRID: Final = 0.1 * np.arange(1, 21)
"""Thresholds tried, in standard deviations, for the features and for the target."""


@cache
def published_thresholds(
    *,
    records: int,
    features: int,
    epsilon: float,
    delta: float,
    score: Literal["absolute_error", "rank_correlation"],
    repeats: int,
    seed: int,
) -> tuple[float, float]:
    """Return the thresholds of features and target that the search finds best on average.

    `repeats` auxiliary data sets, and as many draws of noise for each.
    """
    generator = np.random.default_rng(seed)
    unit_sd = math.sqrt(records / (records - 1.0) * 2.0 * math.log(1.25 / delta)) / epsilon
    total = np.zeros((len(GRID), len(GRID)))
    for _ in range(repeats):
        x = generator.standard_normal((records, features))
        x -= x.mean(axis=0)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        y = x @ generator.standard_normal(features) + generator.standard_normal(records)
        y -= y.mean()
        noise = unit_sd * generator.standard_normal((repeats, features, features + 1))
        total += summed_scores(x, y, noise, score)
    best = np.unravel_index(int(total.argmax()), total.shape)
    return float(GRID[best[0]]), float(GRID[best[1]])


def summed_scores(x: Floats, y: Floats, noise: Floats, score: str) -> Floats:
    """Return the sum over draws of noise of each pair of thresholds' score, shape (20, 20)."""
    features = x.shape[1]
    x_bounds, y_bounds = GRID * x.std(ddof=1), GRID * y.std(ddof=1)
    cut_x = [np.clip(x, -bound, bound) for bound in x_bounds]
    cut_y = np.clip(y[:, None], -y_bounds, y_bounds)  # (n, 20)
    grams = np.array([each.T @ each for each in cut_x])  # (20, d, d)
    crosses = np.array([each.T @ cut_y for each in cut_x]).swapaxes(1, 2)  # (20, 20, d)
    fourth, square = x_bounds[:, None] ** 4, (x_bounds[:, None] * y_bounds) ** 2
    squared_sensitivity = (2.0 * features - 1.0) * features * fourth + 4.0 * features * square
    scale = squared_sensitivity**2  # published so: the sensitivity itself would be right
    total = np.zeros((len(GRID), len(GRID)))
    ranks = rankdata(y) - (len(y) + 1.0) / 2.0
    for draw in noise:
        lower = draw[:, :-1]
        symmetric = np.tril(lower) + np.tril(lower, -1).T
        precision = (
            grams[:, None] + scale[:, :, None, None] * symmetric + np.eye(features)
        )  # (20, 20, d, d)
        right = crosses + scale[:, :, None] * draw[:, -1]
        fitted = np.linalg.solve(precision, right[..., None])[..., 0]
        predicted = x @ fitted.reshape(-1, features).T  # (n, 400)
        if score == "rank_correlation":
            predicted_ranks = np.argsort(np.argsort(predicted, axis=0), axis=0)
            total += (ranks @ predicted_ranks).reshape(total.shape) / (ranks @ ranks)
        else:
            np.subtract(predicted, y[:, None], out=predicted)
            total -= np.abs(predicted, out=predicted).mean(axis=0).reshape(total.shape)
    return total
