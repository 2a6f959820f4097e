"""Projection thresholds chosen on auxiliary data.

Step 3 of Algorithm 2: synthetic data of the same size are cut to thresholds, given the noise that
the next round will have, and fitted; the thresholds that recover the synthetic coefficients best
are used for the true data. Nothing here costs privacy. All candidates and data sets are fitted at
once.
"""

import functools
import math
from typing import Final

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from shoal_learning.quasi_likelihood import ridge_estimates
from shoal_protocol.queries import Column, Mechanism, SecondMomentMatrix
from shoal_protocol.studies.linear_regression import (
    LinearRegressionTask,
    Thresholds,
    thresholds_for,
)

Floats = NDArray[np.float64]

_LARGEST_SAMPLE: Final = 2000
_SEED: Final = 1703_01106
_REMEMBERED: Final = 64  # a trainer asks at a submission, and again in the round


@functools.lru_cache(maxsize=_REMEMBERED)
def choose_thresholds(
    task: LinearRegressionTask, *, records: int, mechanism: Mechanism, noise_ratio: float
) -> Thresholds:
    """Return the thresholds with the smallest mean squared error of prediction.

    Auxiliary data as in equations (4) to (6) of Heikkilä et al. 2017, x ~ N(0, I), b ~ N(0, I),
    y ~ N(x'b, .), standardised, half of the target's variance explained. `noise_ratio` is the
    standard deviation of the summed noise, at relative scale 1, over the sensitivity to one record;
    Laplace noise is taken for normal. More than 2000 records are represented by 2000 with the same
    ratio of noise to signal. The random numbers depend on the arguments alone: the same arguments
    give the same answer.
    """
    features = len(task.features)
    sample = min(records, _LARGEST_SAMPLE)
    candidates = list(thresholds_for(task))
    ratio = noise_ratio * sample / records
    noise_sds = np.array([_noise_sds(task, each.radius, mechanism, ratio) for each in candidates])
    generator = Generator(PCG64(_SEED))
    errors = np.zeros(len(candidates))
    for _ in range(data_sets(features)):
        x, y, b = _records(generator, sample, features)
        noise = _noise(generator, features + 2)
        moments = _moments(candidates, x, y, task.intercept)
        errors += _errors(candidates, moments, noise, noise_sds, b, task.intercept, sample)
    return candidates[int(np.argmin(errors))]


def data_sets(features: int) -> int:
    """Return on how many auxiliary data sets candidates are compared."""
    return 6 if features <= 60 else 1


def _noise_sds(
    task: LinearRegressionTask, radius: float | None, mechanism: Mechanism, noise_ratio: float
) -> tuple[float, float]:
    """Return the noise's standard deviation on and off the diagonal, in normalised units.

    It is that of the query for normalised columns on the finest grid.
    """
    query = SecondMomentMatrix(
        columns=tuple(Column(name=str(j), centre=0.0, scale=1.0) for j in range(len(task.columns))),
        intercept=task.intercept,
        radius=radius,
        grid_bits=15,
        records_per_client=1,
    )
    design = query.design(mechanism)
    unit = noise_ratio * design.sensitivity / query.grid**2
    return unit * design.blocks[0].relative_scale, unit * design.blocks[-2].relative_scale


def _records(generator: Generator, sample: int, features: int) -> tuple[Floats, Floats, Floats]:
    """Return x, y and the coefficients b of one auxiliary data set, standardised."""
    x = generator.standard_normal((sample, features))
    b = generator.standard_normal(features)
    b *= math.sqrt(0.5) / np.linalg.norm(b)
    return x, x @ b + math.sqrt(0.5) * generator.standard_normal(sample), b


def _noise(generator: Generator, width: int) -> Floats:
    upper = np.triu(generator.standard_normal((width, width)))
    noise: Floats = upper + np.triu(upper, 1).T
    return noise


def _moments(candidates: list[Thresholds], x: Floats, y: Floats, intercept: float) -> Floats:
    """Return each candidate's matrix of moments, shape (candidates, p, p), the constant first.

    Rows that differ only in their ball are cut to their box once.
    """
    moments = np.empty((len(candidates), x.shape[1] + 2, x.shape[1] + 2))
    cut = {box: np.clip(x / box, -1.0, 1.0) for box in {each.features for each in candidates}}
    constant = np.full(len(x), intercept)
    boxes: dict[tuple[float, float], tuple[Floats, Floats]] = {}
    for index, each in enumerate(candidates):
        box = (each.features, each.target)
        if box not in boxes:
            target = np.clip(y / each.target, -1.0, 1.0)
            rows = np.column_stack([constant, cut[each.features], target])
            boxes = {box: (rows, np.einsum("ij,ij->i", rows, rows))}
        rows, squares = boxes[box]
        weighted = rows
        if each.radius is not None:
            weighted = rows * np.minimum(1.0, each.radius**2 / squares)[:, None]
        moments[index] = rows.T @ weighted
    return moments


def _errors(
    candidates: list[Thresholds],
    moments: Floats,
    noise: Floats,
    noise_sds: Floats,
    coefficients: Floats,
    intercept: float,
    sample: int,
) -> Floats:
    """Return each candidate's expected squared error of predicting x'b for new, uncut rows."""
    first = 0 if intercept > 0.0 else 1
    noise, moments = noise[first:, first:], moments[:, first:, first:]
    diagonal, off_diagonal = noise_sds[:, 0], noise_sds[:, 1]
    same = np.eye(len(noise))
    scales = off_diagonal[:, None, None] * (1.0 - same) + diagonal[:, None, None] * same
    estimates = ridge_estimates(moments + scales * noise, off_diagonal, sample)
    features = np.array([each.features for each in candidates])
    target = np.array([each.target for each in candidates])
    slopes = estimates[:, -len(coefficients) :] * (target / features)[:, None]
    errors: Floats = np.sum((slopes - coefficients) ** 2, axis=1)
    if intercept > 0.0:
        errors += (target * intercept * estimates[:, 0]) ** 2
    return errors
