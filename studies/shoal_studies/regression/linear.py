"""Linear regression from moments of weighted rows, in units that an earlier round measured.

Rows were counted by their norm before. The mean is that under a prior whose standard deviation all
slopes share, unknown. Intervals are the mean square about it if slopes are as likely alike as each
by itself, and widened for rows far out, which count less.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries import Column, NormCounts, WeightedRowMatrix
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.moments import MomentMatrix
from shoal_protocol.queries.sums import in_units, largest_norms, matrix_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue import regression as rules
from shoal_studies.catalogue.measurements import query_of
from shoal_studies.catalogue.regression import (
    MeasuredRegressionPosterior,
    PooledFactor,
    RegressionTask,
)
from shoal_studies.contract import RequestedRound
from shoal_studies.quasi_likelihood import (
    Coefficients,
    NoisyMoments,
    averaged,
    noise_aware_posterior,
    weights_of,
)
from shoal_studies.regression.judging import judged_linear
from shoal_studies.regression.measured import (
    Likelihood,
    Measured,
    RegressionSums,
    pooled_estimate,
)

SHARES: Final = (0.16, 0.04, 0.8)
"""Shares of mu^2, or of epsilon, of the three rounds."""

_SHARED_SDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
_REACH: Final = 4.0  # spreads of the target from its centre at which it is cut
_PULL: Final = 0.6  # of a slope, by rows far out, which count less
_CUT_PULL: Final = 0.6  # of a slope, if nothing of the target's variance were left
_BY_ITSELF: Final = 0.5  # probability that a slope is unlike the others, for intervals
_ABSENT_SD: Final = 1e-3
_SURELY: Final = 2.0
_LEAST_KEPT: Final = 0.4


@dataclass(frozen=True)
class LinearModel:
    """The learner of a `RegressionTask` of the family "normal"."""

    task: RegressionTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | MeasuredRegressionPosterior:
        """Return the round after these, or the posterior."""
        if not sums:
            return RequestedRound(query=rules.first_query(self.task), share=SHARES[0])
        job = RegressionSums(self.task, sums)
        if len(sums) == 1:
            return RequestedRound(query=rules.norm_query(self.task, job.features), share=SHARES[1])
        if len(sums) == 2:
            query = self._last_query(job.columns, sums[1], job.records[0] * job.weighing[0])
            return RequestedRound(query=query, share=SHARES[2])
        return self.posterior(job.columns, sums[2], job.records, job.weighing)

    def _last_query(
        self, found: Measured, counted: ReleasedSum, records: float
    ) -> WeightedRowMatrix:
        """Return the query with the ball for which noise and pull are least together.

        Noise is known; pull is by rows beyond the ball, which count less than they would.
        """
        counts, norms = sure_norms(counted, surely=_SURELY)
        kept, squares = np.maximum(counts, 0.0), (rules.REACH * norms) ** 2
        whole = max(float(kept @ squares), 1e-9)
        costs, queries = [], []
        for squared_radius in rules.squared_radii(self.task):
            columns = regressed_columns(self.task, found, _REACH)
            queries.append(rules.moments_query(self.task, columns, squared_radius))
            beyond = float(kept @ np.maximum(squares + 1.0 - squared_radius, 0.0)) / whole
            spread = noise_sd(queries[-1], counted, part=SHARES[1] / SHARES[2]) / records
            costs.append(spread**2 + (_PULL * beyond) ** 2)
        return queries[int(np.argmin(costs))]

    def posterior(
        self,
        found: Measured,
        released: ReleasedSum,
        records: tuple[float, float],
        weighed: tuple[float, float] = (1.0, 1.0),
    ) -> MeasuredRegressionPosterior:
        """Return the posterior from the last round; `records` is how many, and to which sd.

        `weighed` are the mean weight and that of a unit of weight: the first over the second of the
        records would tell as much with equal weights (Kish 1965, section 11.7).
        """
        query = query_of(released, WeightedRowMatrix)
        limit = query.target_limit
        unit = limit**2 * weighed[1]
        share = weighed[0] / weighed[1]
        diagonal_sd, product_sd = (released.noise_sd[[0, -2]] / unit / query.grid**2).tolist()
        squared_radius = (query.feature_radius * rules.REACH) ** 2
        moments = NoisyMoments(
            matrix=matrix_from(query, released.values) / unit,
            diagonal_sd=diagonal_sd,
            off_diagonal_sd=product_sd,
            records=records[0] * share,
            records_sd=records[1] * share,
            largest_square=(query.feature_radius / limit) ** 2,
        )
        scale = query.regressed[-1].scale
        unit = limit * rules.REACH * float(found.spreads[-1]) / scale
        prior = unit * np.append(1.0, self.task.prior_sd * found.looseness[:-1])
        coefficients = coefficients_of(moments, unit, prior)
        pooled = None
        if self.task.pooled is not None:
            coefficients, prior, pooled = self._pooled(found, moments, unit, prior)
        pulled = 0.5 * _PULL * min(1.0, len(query.regressed) / squared_radius)
        pulled = math.hypot(pulled, _CUT_PULL * _cut(found, query, moments))
        spread = pulled * coefficients.mean
        spread[0] = 0.0
        covariance = coefficients.covariance + np.diag(spread**2)
        transform = found.to_data_units(scale / (limit * rules.REACH))
        mean = transform @ coefficients.mean
        mean[0] += found.centres[-1]
        offset = np.zeros_like(mean)
        offset[0] = found.centres[-1]
        residual = scale / math.sqrt(kept_squares(query, moments))
        return MeasuredRegressionPosterior(
            family="normal",
            names=("intercept", *(each.name for each in self.task.features)),
            target=self.task.target.name,
            weights=None if self.task.weights is None else self.task.weights.name,
            coefficients=tuple(mean.tolist()),
            covariance=(transform @ covariance @ transform.T).tolist(),
            prior_mean=tuple(offset.tolist()),
            prior_sd=tuple(np.sqrt(transform**2 @ prior**2).tolist()),
            scatter=coefficients.residual_sd * residual,
            scatter_sd=coefficients.residual_sd_sd * residual,
            spreads=tuple(found.spreads[:-1].tolist()),
            records=max(1, round(records[0])),
            pooled=pooled,
            verdict=judged_linear(
                self.task,
                found,
                moments,
                coefficients.mean,
                covariance,
                prior,
                complete=(records[0], released.cohort_size),
                target_kept=1.0 - _cut(found, query, moments),
                mean_weight=weighed[0],
            ),
        )

    def _pooled(
        self, found: Measured, moments: NoisyMoments, unit: float, prior: Floats
    ) -> tuple[Coefficients, Floats, PooledFactor]:
        """Return coefficients of which some are pooled, their prior deviations, the factor."""
        wide, centre = noise_aware_posterior(moments, prior), np.zeros(len(prior))
        pooled = pooled_estimate(
            self.task,
            found,
            Likelihood.of(wide.mean, wide.covariance, centre, prior),
            prior_mean=centre,
            prior_sd=prior,
            shared_sds=[unit * sd for sd in _SHARED_SDS],
            unit=unit,
            data_unit=float(found.spreads[-1]),
        )
        found_again = replace(wide, mean=pooled.mean, covariance=pooled.covariance)
        return found_again, pooled.prior_sd, pooled.factor


def regressed_columns(task: RegressionTask, found: Measured, reach: float) -> tuple[Column, ...]:
    """Return features in spreads, and the target cut at `reach` of them, for the last round."""
    target, centre = task.target, float(found.centres[-1])
    farthest = max(target.upper - centre, centre - target.lower)  # that a value can be
    scale = min(reach * float(found.spreads[-1]), farthest)
    last = Column(name=target.name, centre=centre, scale=scale, term=target.term)
    return (*found.features(task.features), last)


def sure_norms(counted: ReleasedSum, *, surely: float) -> tuple[Floats, Floats]:
    """Return counts of rows in bins of norms, without those that noise alone may have made.

    Then the largest norm of each bin; shapes (27,). Above a bin that is kept are more rows than
    `surely` standard deviations of the noise.

    Raises:
        ValueError: it is a sum of another query.
    """
    query = query_of(counted, NormCounts)
    counts = in_units(query, counted.values)[:-1]
    sd = float(counted.noise_sd[0]) / query.grid**2
    tails = np.cumsum(counts[::-1])[::-1]
    sure = np.flatnonzero(tails > surely * sd * np.sqrt(np.arange(len(tails), 0, -1)))
    counts[(int(sure[-1]) if sure.size else 0) + 1 :] = 0.0
    return counts, largest_norms(query)


def noise_sd(query: MomentMatrix, earlier: ReleasedSum, *, part: float, block: int = 0) -> float:
    """Return the noise on products, in squared spreads, of a round that is to ask `query`.

    `part` is the share of the `earlier` round over its own. `block` 0 is of squares, 1 of others.
    """
    mechanism = earlier.mechanism
    ratio = float(earlier.noise_sd[0]) / earlier.query.design(mechanism).sensitivity
    ratio *= math.sqrt(part) if mechanism == "discrete_gaussian" else part
    design = query.design(mechanism)
    scale = design.sensitivity * design.blocks[block].relative_scale
    return ratio * scale * rules.REACH**2 / query.grid**2


def under_shared_priors(moments: NoisyMoments, unit: float) -> Coefficients:
    """Return what is learned under a prior whose standard deviation all slopes share, unknown.

    `unit` is a slope of one spread of the target for one of the feature. `log_evidence` is of the
    likeliest of six shared priors.
    """
    slopes = len(moments.matrix) - 2
    fits = [
        noise_aware_posterior(moments, unit * np.append(1.0, np.full(slopes, sd)))
        for sd in _SHARED_SDS
    ]
    logs = np.array([one.log_evidence for one in fits])
    mean, covariance = averaged(
        logs, np.array([one.mean for one in fits]), np.array([one.covariance for one in fits])
    )
    squares = np.array([one.residual_sd**2 for one in fits])
    likely = np.sqrt(squares - np.array([one.residual_sd_sd**2 for one in fits]))
    variance = float(weights_of(logs) @ squares)
    return Coefficients(
        mean=mean,
        covariance=covariance,
        residual_sd=variance**0.5,
        residual_sd_sd=max(variance - float(weights_of(logs) @ likely) ** 2, 0.0) ** 0.5,
        log_evidence=float(logs.max()),
    )


def coefficients_of(moments: NoisyMoments, unit: float, own: Floats) -> Coefficients:
    """Return the mean under a shared prior, with the mean square error about it.

    `unit` is as in `under_shared_priors`, and `own`, shape (k,), the standard deviations of a prior
    for each slope by itself.
    """
    shared, wide = under_shared_priors(moments, unit), noise_aware_posterior(moments, own)
    away = shared.mean - wide.mean
    apart = wide.covariance + np.outer(away, away)
    covariance = _BY_ITSELF * apart + (1.0 - _BY_ITSELF) * shared.covariance
    return replace(shared, covariance=covariance)


def log_evidence(moments: NoisyMoments, unit: float, is_there: NDArray[np.bool_]) -> float:
    """Return the log evidence of the model with slopes where `is_there`, shape (k - 1,).

    Up to a constant of the moments. The slopes share a prior's standard deviation, which is as
    likely each of six; the others are 0, but for what no moments tell.
    """
    logs = []
    for sd in _SHARED_SDS:
        prior = unit * np.append(1.0, np.where(is_there, sd, _ABSENT_SD))
        logs.append(noise_aware_posterior(moments, prior).log_evidence)
    return float(np.logaddexp.reduce(logs) - math.log(len(logs)))


def _cut(found: Measured, query: WeightedRowMatrix, moments: NoisyMoments) -> float:
    """Return the part of the target's variance that surely is not within where it was cut."""
    reach = query.regressed[-1].scale / float(found.spreads[-1])
    whole = moments.records * kept_squares(query, moments) / reach**2
    return min(max(1.0 - (float(moments.matrix[-1, -1]) + moments.diagonal_sd) / whole, 0.0), 1.0)


def kept_squares(query: WeightedRowMatrix, moments: NoisyMoments) -> float:
    """Return the mean square of rows' weights, from the constant's moment."""
    whole = moments.records * (query.constant / query.grid / query.target_limit) ** 2
    return min(max(float(moments.matrix[0, 0]) / whole, _LEAST_KEPT), 1.0)
