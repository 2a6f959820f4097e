"""Bayesian linear regression from private sums, by any of the task's methods.

The rounds before the last measure what keeps its noise small: the columns' means, their spreads, or
the rows' norms (`shoal_protocol.studies.linear_regression`). Projections choose thresholds on
auxiliary data. The last round releases a matrix of second moments, of which the posterior is made.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_learning.contract import RequestedRound
from shoal_learning.grounds import grounds_of
from shoal_learning.quasi_likelihood import Coefficients, NoisyMoments, noise_aware_posterior
from shoal_learning.thresholds import choose_thresholds
from shoal_protocol.posteriors.grounds import Grounds
from shoal_protocol.queries import Moments, QueryName, SecondMomentMatrix, UnitRowMatrix
from shoal_protocol.queries.sums import matrix_from
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies import Posterior
from shoal_protocol.studies.linear_regression import (
    LinearRegressionPosterior,
    LinearRegressionTask,
)
from shoal_protocol.studies.linear_regression.round_rules import Thresholds, query_for
from shoal_protocol.studies.measurements import (
    measured_spreads,
    record_count,
    record_law,
)

SHARES: Final[dict[QueryName, float]] = {
    "first_moments": 0.15,
    "second_moments": 0.2,
    "norm_counts": 0.05,
}
"""Shares of mu^2, or of epsilon, of the rounds before the last one, which gets the rest."""


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
        names = self.task.query_names()
        if [released.query.name for released in sums] != list(names[: len(sums)]):
            raise ValueError("the sums are not those of this task's rounds, in order")
        for released in sums:
            self._refuse_foreign(released)
        if len(sums) == len(names):
            return self._posterior(sums)
        last = len(sums) == len(names) - 1
        chosen = self._thresholds(sums[-1]) if last and self.task.projects else None
        query = query_for(self.task, population, sums, chosen)
        return RequestedRound(query=query, share=self.shares()[len(sums)])

    def shares(self) -> tuple[float, ...]:
        """Return the rounds' shares of the job's mu^2, or of its epsilon, in order."""
        before = [SHARES[name] for name in self.task.query_names()[:-1]]
        return (*before, 1.0 - math.fsum(before))

    def _refuse_foreign(self, released: ReleasedSum) -> None:
        query = released.query
        if not isinstance(query, Moments):
            raise ValueError("a sum answers another task's query")
        columns = [(each.name, each.term) for each in self.task.columns]
        constant = 0.0 if query.name == "norm_counts" else self.task.intercept
        asked = (columns, constant, self.task.records_per_client)
        answered = [(each.name, each.term) for each in query.columns]
        if (answered, query.intercept, query.records_per_client) != asked:
            raise ValueError("a sum answers another task's query")

    def _thresholds(self, measured: ReleasedSum) -> Thresholds:
        """Choose thresholds for the noise of the last round, known from that of `measured`."""
        ratio = float(measured.noise_sd[0]) / measured.query.design(measured.mechanism).sensitivity
        *_, this, last = self.shares()
        laplace = measured.mechanism == "discrete_laplace"
        ratio *= this / last if laplace else math.sqrt(this / last)
        return choose_thresholds(
            self.task,
            records=record_count(measured),
            mechanism=measured.mechanism,
            noise_ratio=ratio * self.task.records_per_client,
        )

    def _posterior(self, sums: Sequence[ReleasedSum]) -> Posterior:
        spreads = measured_spreads(sums[-2]) if self.task.projects else None
        return _posterior(sums[-1], self.task, spreads)


def _posterior(
    released: ReleasedSum,
    task: LinearRegressionTask,
    spreads: NDArray[np.float64] | None,
) -> Posterior:
    """Return the posterior; `prior_sd` is in units of `spreads`, one per column, where there are
    any, and else of the columns' bounds."""
    units = np.array(task.scales) if spreads is None else spreads
    query = released.query
    if not isinstance(query, SecondMomentMatrix | UnitRowMatrix):
        raise ValueError("a posterior is made of a matrix of second moments")
    matrix = matrix_from(query, released.values)
    diagonal_sd, off_diagonal_sd = (released.noise_sd[[0, -2]] / query.grid**2).tolist()
    records, (rows, rows_sd) = record_count(released), record_law(released)
    rows = max(rows, 1.0)
    scales = np.array([column.scale for column in query.columns]) / units
    prior = task.prior_sd * scales[:-1] / scales[-1]
    constant = _lattice_intercept(query)
    if constant > 0.0:
        prior = np.append(2.0 * task.prior_sd / (constant * scales[-1]), prior)
    moments = NoisyMoments(
        matrix=matrix,
        diagonal_sd=diagonal_sd,
        off_diagonal_sd=off_diagonal_sd,
        records=rows,
        records_sd=rows_sd,
        largest_square=_largest_square(query),
    )
    result = noise_aware_posterior(moments, prior)
    shrinkage = _mean_squared_shrinkage(query, moments)
    grounds = grounds_of(task, query, moments, prior, _to_data_units(query), spreads)
    residual_sd = result.residual_sd / math.sqrt(shrinkage)
    return _in_data_units(query, result, residual_sd, records, grounds)


def _in_data_units(
    query: SecondMomentMatrix | UnitRowMatrix,
    result: Coefficients,
    residual_sd: float,
    records: int,
    grounds: Grounds,
) -> LinearRegressionPosterior:
    """Return a normal posterior in the units of the data."""
    offset, transform = _to_data_units(query)
    *features, target = query.columns
    mean = offset + transform @ result.mean
    covariance = transform @ result.covariance @ transform.T
    return LinearRegressionPosterior(
        names=("intercept", *(column.name for column in features)),
        target=target.name,
        coefficients=tuple(mean.tolist()),
        covariance=tuple(tuple(row) for row in covariance.tolist()),
        residual_sd=residual_sd * target.scale,
        records=records,
        grounds=grounds,
        unit_rows=tuple(features) if isinstance(query, UnitRowMatrix) else None,
    )


def _to_data_units(
    query: SecondMomentMatrix | UnitRowMatrix,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return c and T such that c + Tb undoes the normalisation of coefficients b.

    y = c_y + h_y (constant b_0 + sum_j b_j (x_j - c_j) / h_j).

    Of unit rows the target's alone is undone.
    """
    constant = _lattice_intercept(query)
    *features, target = query.columns
    unit_rows = isinstance(query, UnitRowMatrix)
    centres = np.array([0.0 if unit_rows else column.centre for column in features])
    slopes = target.scale / np.array([1.0 if unit_rows else column.scale for column in features])
    transform: NDArray[np.float64] = np.vstack([-centres * slopes, np.diag(slopes)])
    if constant > 0.0:
        first = np.zeros(len(transform))
        first[0] = target.scale * constant
        transform = np.column_stack([first, transform])
    offset = np.zeros(len(transform))
    offset[0] = target.centre
    return offset, transform


def _lattice_intercept(query: SecondMomentMatrix | UnitRowMatrix) -> float:
    """Return the constant coordinate as the grid rounds it."""
    return math.floor(query.intercept * query.grid) / query.grid


def _largest_square(query: SecondMomentMatrix | UnitRowMatrix) -> float:
    """Return what no row's squared norm exceeds, in normalised units."""
    limit = query.squared_norm_limit
    return float(query.width if limit is None else limit / query.grid**2)


def _mean_squared_shrinkage(
    query: SecondMomentMatrix | UnitRowMatrix, moments: NoisyMoments
) -> float:
    """Return the mean squared factor by which the ball shrank rows, by the constant's share of it.

    A row shrunk by c has its residual shrunk by c too. Noise allowing, c^2 is the constant's second
    moment over the number of rows; it is combined with a prior guess of .85 +- .15.
    """
    unit_rows = isinstance(query, UnitRowMatrix)  # which are within the ball as they are
    if unit_rows or query.squared_norm_limit is None or query.intercept == 0.0:
        return 1.0
    square = _lattice_intercept(query) ** 2
    seen = float(moments.matrix[0, 0]) / (moments.records * square)
    error = math.hypot(moments.diagonal_sd / square, moments.records_sd) / moments.records
    precision: float = error**-2.0
    estimate = (seen * precision + 0.85 / 0.15**2) / (precision + 1.0 / 0.15**2)
    return min(max(estimate, 0.4), 1.0)
