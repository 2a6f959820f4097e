"""Projection thresholds chosen on auxiliary data; sees public numbers only, no sum and no record.

Step 3 of Algorithm 2: synthetic data of the same size are cut to thresholds, given the noise that
the next round will have, and fitted; the thresholds that recover the synthetic coefficients best
are used for the true data. Nothing here costs privacy.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from shoal_learning.quasi_likelihood import NoisyMoments, ridge_estimate
from shoal_protocol.queries import Column, Mechanism, SecondMomentMatrix
from shoal_protocol.questions.linear_regression import Thresholds, thresholds_for

FloatMatrix = NDArray[np.float64]

_LARGEST_SAMPLE: Final = 2000
_SEED: Final = 1703_01106


@dataclass(frozen=True, kw_only=True)
class _Draw:
    """One auxiliary data set, standardised, with the noise to come in units of its diagonal."""

    x: FloatMatrix
    y: FloatMatrix
    coefficients: FloatMatrix
    noise: FloatMatrix


def choose_thresholds(
    *, records: int, features: int, intercept: float, mechanism: Mechanism, noise_ratio: float
) -> Thresholds:
    """Return the thresholds with the smallest mean squared error of prediction.

    Auxiliary data as in equations (4) to (6) of Heikkilä et al. 2017, x ~ N(0, I), b ~ N(0, I),
    y ~ N(x'b, .), standardised, half of the target's variance explained. `noise_ratio` is the
    standard deviation of the summed noise, at relative scale 1, over the sensitivity to one record;
    Laplace noise is taken for normal. More than 2000 records are represented by 2000 with the same
    ratio of noise to signal. The random numbers depend on the arguments alone: the same arguments
    give the same answer.
    """
    generator = Generator(PCG64(_SEED))
    sample = min(records, _LARGEST_SAMPLE)
    draws = [_draw(generator, sample, features) for _ in range(6 if features <= 60 else 1)]
    candidates = list(thresholds_for(features=features, intercept=intercept))
    ratio = noise_ratio * sample / records
    errors = []
    for candidate in candidates:
        query = _query(candidate.radius, features, intercept)
        sds = _noise_sds(query, mechanism, ratio)
        errors.append(sum(_error(candidate, query, draw, sds) for draw in draws))
    return candidates[int(np.argmin(errors))]


def _query(radius: float, features: int, intercept: float) -> SecondMomentMatrix:
    """Return what would be asked, for normalised columns, on the finest grid."""
    return SecondMomentMatrix(
        columns=tuple(Column(name=str(j), centre=0.0, scale=1.0) for j in range(features + 1)),
        intercept=intercept,
        radius=radius,
        grid_bits=15,
        records_per_client=1,
    )


def _noise_sds(
    query: SecondMomentMatrix, mechanism: Mechanism, noise_ratio: float
) -> tuple[float, float]:
    """Return the noise's standard deviation on and off the diagonal, in normalised units."""
    design = query.design(mechanism)
    unit = noise_ratio * design.sensitivity / query.grid**2
    return unit * design.blocks[0].relative_scale, unit * design.blocks[-1].relative_scale


def _draw(generator: Generator, sample: int, features: int) -> _Draw:
    x = generator.standard_normal((sample, features))
    b = generator.standard_normal(features)
    b *= math.sqrt(0.5) / np.linalg.norm(b)
    y = x @ b + math.sqrt(0.5) * generator.standard_normal(sample)
    width = features + 2
    upper = np.triu(generator.standard_normal((width, width)))
    return _Draw(x=x, y=y, coefficients=b, noise=upper + np.triu(upper, 1).T)


def _error(
    candidate: Thresholds, query: SecondMomentMatrix, draw: _Draw, noise_sds: tuple[float, float]
) -> float:
    """Return the expected squared error of predicting x'b for new, uncut rows."""
    intercept = query.intercept
    rows = np.column_stack(
        [
            np.full(len(draw.x), intercept),
            np.clip(draw.x / candidate.features, -1.0, 1.0),
            np.clip(draw.y / candidate.target, -1.0, 1.0),
        ]
    )
    noise = draw.noise
    if intercept == 0.0:
        rows, noise = rows[:, 1:], noise[1:, 1:]
    width = rows.shape[1]
    if query.squared_norm_limit is not None:
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows * np.minimum(1.0, candidate.radius / norms)
    diagonal_sd, off_diagonal_sd = noise_sds
    scale = np.full((width, width), off_diagonal_sd)
    np.fill_diagonal(scale, diagonal_sd)
    estimate = ridge_estimate(
        NoisyMoments(
            matrix=rows.T @ rows + scale * noise,
            diagonal_sd=diagonal_sd,
            off_diagonal_sd=off_diagonal_sd,
            records=len(rows),
        )
    )
    slopes = estimate[-draw.x.shape[1] :] * (candidate.target / candidate.features)
    constant = candidate.target * intercept * estimate[0] if intercept > 0.0 else 0.0
    return float(np.sum((slopes - draw.coefficients) ** 2) + constant**2)
