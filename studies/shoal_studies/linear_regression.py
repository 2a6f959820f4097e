"""Bayesian linear regression from private sums, by any of the task's methods.

A projection first measures the columns' spreads (`shoal_studies.catalogue.linear_regression`), and
chooses thresholds on auxiliary data. The last round releases a matrix of second moments, of which
the posterior is made.

Projection thresholds are step 3 of Algorithm 2: synthetic data of the same size are cut to
thresholds, given the noise that the next round will have, and fitted; the thresholds that recover
the synthetic coefficients best are used for the true data. Nothing there costs privacy. All
candidates and data sets are fitted at once.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from shoal_protocol.queries import Column, Mechanism, SecondMomentMatrix
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import matrix_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.linear_regression import (
    BOXES,
    LinearRegressionPosterior,
    LinearRegressionTask,
    Thresholds,
    mean_square_in_box,
    query_for,
    thresholds_for,
)
from shoal_studies.catalogue.measurements import (
    measured_spreads,
    query_of,
    record_count,
    record_law,
)
from shoal_studies.catalogue.study import require_due
from shoal_studies.contract import RequestedRound
from shoal_studies.posteriors.base import BasePosterior
from shoal_studies.quasi_likelihood import (
    NoisyMoments,
    noise_aware_posterior,
    ridge_estimates,
)

_COARSE: Final = set(BOXES[1::3])
_LARGEST_SAMPLE: Final = 2000
_SEED: Final = 1703_01106
_REMEMBERED: Final = 256  # a trainer asks at a submission, and again in the round


@functools.lru_cache(maxsize=_REMEMBERED)
def choose_thresholds(
    task: LinearRegressionTask, *, records: int, mechanism: Mechanism, noise_ratio: float
) -> Thresholds:
    """Return the thresholds with the smallest mean squared error of prediction.

    Every third box is tried, and then all that are near the best. Auxiliary data are those of
    equations (4) to (6) of Heikkilä et al. 2017, x ~ N(0, I), b ~ N(0, prior_sd^2 I),
    y ~ N(x'b, residual_sd^2), standardised; without `residual_sd` half of the target's variance is
    explained. `noise_ratio` is the standard deviation of the summed noise, at relative scale 1,
    over the sensitivity to one record; Laplace noise is taken for normal. More than 2000 records
    are represented by 2000 with the same ratio of noise to signal. The random numbers depend on the
    arguments alone: the same arguments give the same answer.
    """
    every = list(thresholds_for(task))
    errors = functools.partial(
        _mean_errors, task=task, records=records, mechanism=mechanism, noise_ratio=noise_ratio
    )
    few = [each for each in every if {each.features, each.target} <= _COARSE] or every
    best = few[int(np.argmin(errors(few)))]
    near = [
        each
        for each in every
        if _is_near(each.features, best.features) and _is_near(each.target, best.target)
    ]
    return near[int(np.argmin(errors(near)))]


def _is_near(box: float, best: float) -> bool:
    return abs(box - best) <= max(0.2, best / 3.0) + 1e-9


def _mean_errors(
    candidates: list[Thresholds],
    *,
    task: LinearRegressionTask,
    records: int,
    mechanism: Mechanism,
    noise_ratio: float,
) -> Floats:
    """Return each candidate's error on the same auxiliary data, up to a common factor."""
    features = len(task.features)
    sample = min(records, _LARGEST_SAMPLE)
    ratio = noise_ratio * sample / records
    noise_sds = np.array([_noise_sds(task, each.radius, mechanism, ratio) for each in candidates])
    generator = Generator(PCG64(_SEED))
    errors = np.zeros(len(candidates))
    for _ in range(6 if features <= 60 else 1):  # auxiliary data sets
        x, y, b = _records(generator, sample, features, task.prior_sd, task.residual_sd)
        noise = _noise(generator, features + 2)
        moments = _moments(candidates, x, y, task.intercept)
        errors += _errors(candidates, moments, noise, noise_sds, b, task.intercept, sample)
    return errors


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


def _records(
    generator: Generator, sample: int, features: int, prior_sd: float, residual_sd: float | None
) -> tuple[Floats, Floats, Floats]:
    """Return x, y and the coefficients b of one auxiliary data set, standardised."""
    x = generator.standard_normal((sample, features))
    b = generator.standard_normal(features)
    signal = float(np.linalg.norm(b))
    residual = signal if residual_sd is None else residual_sd / prior_sd
    spread = math.hypot(signal, residual)
    b /= spread
    return x, x @ b + residual / spread * generator.standard_normal(sample), b


def _noise(generator: Generator, width: int) -> Floats:
    upper = np.triu(generator.standard_normal((width, width)))
    return np.asarray(upper + np.triu(upper, 1).T)


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


@dataclass(frozen=True)
class LinearRegression:
    """The learner of one `LinearRegressionTask`."""

    task: LinearRegressionTask

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | BasePosterior:
        """Return the next round, or the posterior when `sums` suffice.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        require_due(self.task, population, sums)
        if len(sums) == self.task.rounds:
            spreads = measured_spreads(sums[-2]) if self.task.projects else None
            return _posterior(sums[-1], self.task, spreads)
        last = len(sums) == self.task.rounds - 1
        chosen = self._thresholds(sums[-1]) if last and self.task.projects else None
        query = query_for(self.task, population, sums, chosen)
        return RequestedRound(query=query, share=self.shares()[len(sums)])

    def shares(self) -> tuple[float, ...]:
        """Return the rounds' shares of the job's mu^2, or of its epsilon, in order."""
        share = self.task.measuring_share
        return (share, 1.0 - share) if self.task.projects else (1.0,)

    def _thresholds(self, measured: ReleasedSum) -> Thresholds:
        """Choose thresholds for the noise of the last round, known from that of `measured`."""
        ratio = float(measured.noise_sd[0]) / measured.query.design(measured.mechanism).sensitivity
        *_, this, last = self.shares()
        laplace = measured.mechanism == "discrete_laplace"
        ratio *= this / last if laplace else math.sqrt(this / last)
        return choose_thresholds(
            self.task,
            records=int(_about(record_count(measured))),
            mechanism=measured.mechanism,
            noise_ratio=_about(ratio * self.task.records_per_client),
        )


def _about(number: float) -> float:
    """Round to two digits, so that similar cohorts share one search for thresholds."""
    return float(f"{number:.2g}")


def _posterior(
    released: ReleasedSum,
    task: LinearRegressionTask,
    spreads: NDArray[np.float64] | None,
) -> BasePosterior:
    """Return the posterior; `prior_sd` is in units of `spreads`, one per column, where there are
    any, and else of the columns' bounds."""
    units = np.array(task.scales) if spreads is None else spreads
    query = query_of(released, SecondMomentMatrix)
    matrix = matrix_from(query, released.values)
    diagonal_sd, off_diagonal_sd = (released.noise_sd[[0, -2]] / query.grid**2).tolist()
    rows, rows_sd = record_law(released)
    scales = np.array([column.scale for column in query.columns]) / units
    prior = task.prior_sd * scales[:-1] / scales[-1]
    constant = query.constant / query.grid
    if constant > 0.0:
        prior = np.append(2.0 * task.prior_sd / (constant * scales[-1]), prior)
    limit = query.squared_norm_limit
    moments = NoisyMoments(
        matrix=matrix,
        diagonal_sd=diagonal_sd,
        off_diagonal_sd=off_diagonal_sd,
        records=max(rows, 1.0),
        records_sd=rows_sd,
        largest_square=query.width if limit is None else limit / query.grid**2,
    )
    shrinkage = math.sqrt(_mean_squared_shrinkage(query, moments))
    told = None if task.residual_sd is None else task.residual_sd / scales[-1] * shrinkage
    result = noise_aware_posterior(moments, prior, residual_sd=told)
    residual_sd = result.residual_sd / shrinkage
    covariance = result.covariance
    if spreads is not None:
        covariance = covariance + np.diag((_pulls(query, spreads) * result.mean) ** 2)
    offset, transform = _to_data_units(query)
    *features, target = query.columns
    return LinearRegressionPosterior(
        names=("intercept", *(column.name for column in features)),
        target=target.name,
        coefficients=(offset + transform @ result.mean).tolist(),
        covariance=(transform @ covariance @ transform.T).tolist(),
        residual_sd=residual_sd * target.scale,
        records=record_count(released),
        prior_mean=tuple(offset.tolist()),
        prior_sd=tuple(np.sqrt(transform**2 @ prior**2).tolist()),
    )


def _pulls(query: SecondMomentMatrix, spreads: Floats) -> Floats:
    """Return what cutting changes in each coefficient, over what it leaves, if columns are normal.

    For weak slopes, by Price's theorem: of a slope P(|x| < c) P(|y| < c') / E min(x^2, c^2) is left
    for standard normal x and y with thresholds c and c', of a constant P(|y| < c').
    """
    *boxes, target_box = (np.array([column.scale for column in query.columns]) / spreads).tolist()
    target = _within(target_box)
    left = [_within(box) * target / (box**2 * mean_square_in_box(box)) for box in boxes]
    return 1.0 / np.array([*([target] if query.constant else []), *left]) - 1.0


def _within(box: float) -> float:
    return math.erf(box / math.sqrt(2.0))


def _to_data_units(
    query: SecondMomentMatrix,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return c and T such that c + Tb undoes the normalisation of coefficients b.

    y = c_y + h_y (constant b_0 + sum_j b_j (x_j - c_j) / h_j).
    """
    constant = query.constant / query.grid
    *features, target = query.columns
    centres = np.array([column.centre for column in features])
    slopes = target.scale / np.array([column.scale for column in features])
    transform: NDArray[np.float64] = np.vstack([-centres * slopes, np.diag(slopes)])
    if constant > 0.0:
        first = np.zeros(len(transform))
        first[0] = target.scale * constant
        transform = np.column_stack([first, transform])
    offset = np.zeros(len(transform))
    offset[0] = target.centre
    return offset, transform


def _mean_squared_shrinkage(query: SecondMomentMatrix, moments: NoisyMoments) -> float:
    """Return the mean squared factor by which the ball shrank rows, by the constant's share of it.

    A row shrunk by c has its residual shrunk by c too. Noise allowing, c^2 is the constant's second
    moment over the number of rows; it is combined with a prior guess of .85 +- .15.
    """
    if query.squared_norm_limit is None or query.intercept == 0.0:
        return 1.0
    square = (query.constant / query.grid) ** 2
    seen = float(moments.matrix[0, 0]) / (moments.records * square)
    error = math.hypot(moments.diagonal_sd / square, moments.records_sd) / moments.records
    precision: float = error**-2.0
    estimate = (seen * precision + 0.85 / 0.15**2) / (precision + 1.0 / 0.15**2)
    return min(max(estimate, 0.4), 1.0)
