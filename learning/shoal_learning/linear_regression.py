"""Bayesian linear regression from private sums, plain or with projection; does no I/O.

Plain: one round of second moments. With projection (Algorithm 2 of Heikkilä et al. 2017, with the
corrected sensitivities of docs/mathematics.md): a first round measures the columns' root mean
squares about the middle of their bounds, thresholds are chosen on auxiliary data, and the second
round's columns are scaled by thresholds times root mean squares.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_learning.contract import RequestedRound
from shoal_learning.quasi_likelihood import Coefficients, NoisyMoments, noise_aware_posterior
from shoal_learning.thresholds import choose_thresholds
from shoal_protocol.posteriors import LinearRegressionPosterior, Posterior
from shoal_protocol.queries import Query, SecondMomentMatrix, SecondMoments
from shoal_protocol.questions import ReleasedSum
from shoal_protocol.questions.linear_regression import (
    first_query,
    measured_spreads,
    record_count,
    second_query,
)
from shoal_protocol.tasks import LinearRegressionTask

FIRST_ROUND_SHARE: Final = 0.2
"""Share of mu^2 that the projection's first round costs."""


@dataclass(frozen=True)
class LinearRegression:
    """The learner of one `LinearRegressionTask`."""

    task: LinearRegressionTask

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | Posterior:
        """Return the next round, or the posterior when `sums` suffice.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        if population < 1:
            raise ValueError("the population must be positive")
        for released in sums:
            self._refuse_foreign(released.query)
        match [(released.query, released) for released in sums]:
            case [(SecondMomentMatrix() as query, released)] if not self.task.projection:
                half_ranges = np.array([column.half_range for column in self.task.columns])
                return _posterior(query, released, self.task.prior_sd, half_ranges)
            case [
                (SecondMoments(), first),
                (SecondMomentMatrix() as query, released),
            ] if self.task.projection:
                spreads = measured_spreads(first)
                return _posterior(query, released, self.task.prior_sd, spreads)
            case [(SecondMoments() as moments, released)] if self.task.projection:
                return self._projected_round(moments, released)
            case [] if self.task.projection:
                return RequestedRound(
                    query=first_query(self.task, population), share=FIRST_ROUND_SHARE
                )
            case []:
                return RequestedRound(query=first_query(self.task, population), share=1.0)
        raise ValueError("the sums are not those of this task's rounds, in order")

    def _refuse_foreign(self, query: Query) -> None:
        if not isinstance(query, SecondMoments | SecondMomentMatrix):
            raise ValueError("a sum answers another task's query")
        names = tuple(column.name for column in self.task.columns)
        asked = (names, self.task.intercept, self.task.records_per_client)
        if (query.column_names, query.intercept, query.records_per_client) != asked:
            raise ValueError("a sum answers another task's query")

    def _projected_round(self, query: SecondMoments, first: ReleasedSum) -> RequestedRound:
        records = record_count(query, int(first.values[0]), first.cohort_size)
        # Round 2 may cost (1 - share)/share times the first round's mu^2, or epsilon.
        ratio = float(first.noise_sd[0]) / query.design(first.mechanism).sensitivity
        relative = FIRST_ROUND_SHARE / (1.0 - FIRST_ROUND_SHARE)
        ratio *= relative if first.mechanism == "discrete_laplace" else math.sqrt(relative)
        chosen = choose_thresholds(
            records=records,
            features=len(self.task.features),
            intercept=self.task.intercept,
            mechanism=first.mechanism,
            noise_ratio=ratio * self.task.records_per_client,
        )
        asked = second_query(self.task, chosen, measured_spreads(first).tolist())
        return RequestedRound(query=asked, share=1.0 - FIRST_ROUND_SHARE)


def _posterior(
    query: SecondMomentMatrix,
    released: ReleasedSum,
    prior_sd: float,
    units: NDArray[np.float64],
) -> LinearRegressionPosterior:
    """Return the posterior; `units`, one per column, are what `prior_sd` is measured in."""
    matrix = query.matrix_from(released.values)
    diagonal_sd, off_diagonal_sd = (released.noise_sd[[0, -1]] / query.grid**2).tolist()
    records = record_count(query, int(released.values[0]), released.cohort_size)
    scales = np.array([column.scale for column in query.columns]) / units
    prior = prior_sd * scales[:-1] / scales[-1]
    constant = _lattice_intercept(query)
    if constant > 0.0:
        prior = np.append(2.0 * prior_sd / (constant * scales[-1]), prior)
    moments = NoisyMoments(
        matrix=matrix,
        diagonal_sd=diagonal_sd,
        off_diagonal_sd=off_diagonal_sd,
        records=records,
    )
    result = noise_aware_posterior(moments, prior)
    shrinkage = _mean_squared_shrinkage(query, float(matrix[0, 0]), diagonal_sd, records)
    return _in_data_units(query, result, result.residual_sd / math.sqrt(shrinkage), records)


def _in_data_units(
    query: SecondMomentMatrix, result: Coefficients, residual_sd: float, records: int
) -> LinearRegressionPosterior:
    """Undo the normalisation: y = c_y + h_y (constant b_0 + sum_j b_j (x_j - c_j) / h_j)."""
    constant = _lattice_intercept(query)
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
    mean = offset + transform @ result.mean
    covariance = transform @ result.covariance @ transform.T
    return LinearRegressionPosterior(
        names=("intercept", *(column.name for column in features)),
        target=target.name,
        coefficients=tuple(mean.tolist()),
        covariance=tuple(tuple(row) for row in covariance.tolist()),
        residual_sd=residual_sd * target.scale,
        records=records,
    )


def _lattice_intercept(query: SecondMoments | SecondMomentMatrix) -> float:
    """Return the constant coordinate as the grid rounds it."""
    return math.floor(query.intercept * query.grid) / query.grid


def _mean_squared_shrinkage(
    query: SecondMomentMatrix, first_moment: float, noise_sd: float, records: int
) -> float:
    """Return the mean squared factor by which the ball shrank rows, by the constant's share of it.

    A row shrunk by c has its residual shrunk by c too. Noise allowing, c^2 is seen in the
    constant's second moment; it is combined with a prior guess of .85 +- .15.
    """
    if query.squared_norm_limit is None or query.intercept == 0.0:
        return 1.0
    whole = records * _lattice_intercept(query) ** 2
    precision = (whole / noise_sd) ** 2
    estimate = (first_moment / whole * precision + 0.85 / 0.15**2) / (precision + 1.0 / 0.15**2)
    return min(max(estimate, 0.4), 1.0)
