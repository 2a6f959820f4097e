"""Linear regression whose predictions err little where noise is strong.

Centres are measured in a ball of rows, then how long rows are about them, then spreads in a ball
that most rows are in; so all of it costs little noise. Spreads are taken for alike, as far as
noise hides how they differ, and targets far off are cut. The last round takes moments. Under strong
noise its rows are all made of one length, so that none fills less of the ball than another: that is
a little wrong for long and short rows, and lets the noise hide less of weak slopes.

`_NOISE`, `_REACHES` and `_STRONG` were chosen on wines, abalone and GDSC's drugs, and on nine sets
of the literature on private regression: docs/figures.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import softmax

from shoal_protocol.queries import SecondMoments, WeightedRowMatrix
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import in_units, matrix_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue import regression as rules
from shoal_studies.catalogue.measurements import measured_means, measured_norm, query_of
from shoal_studies.catalogue.regression import (
    MeasuredRegressionPosterior,
    RegressionTask,
    Verdict,
)
from shoal_studies.catalogue.study import require_due
from shoal_studies.contract import RequestedRound
from shoal_studies.quasi_likelihood import (
    NoisyMoments,
)
from shoal_studies.regression.judging import (
    NOISE_OUTWEIGHS,
    beyond_bounds,
    crowded,
    few_complete,
    predicts_better,
)
from shoal_studies.regression.linear import (
    kept_squares,
    noise_sd,
    regressed_columns,
    under_shared_priors,
)
from shoal_studies.regression.measured import Measured, records_of

SHARES: Final = (0.15, 0.03, 0.12, 0.7)
"""Shares of mu^2, or of epsilon, of the four rounds."""

_NOISE: Final = (0.0, 0.02, 0.04, 0.1)
_REACHES: Final = (2.4, 1.7, 1.7, 1.15)
"""Spreads of the target from its centre at which it is cut, by the noise on mean squares, in
squared spreads; between them in proportion."""

_STRONG: Final = 0.04  # such noise, from which on rows are made of one length

_WITHIN: Final = 0.5  # share of rows in the ball in which spreads are measured
_FARTHEST: Final = 0.98  # of a mean from the middle: some values are elsewhere
_SPREADS: Final = np.geomspace(rules.SMALLEST_SPREAD, 1.0, 60)
_TYPICAL: Final = np.geomspace(rules.SMALLEST_SPREAD, 0.7, 30)
_UNLIKE: Final = (0.15, 0.3, 0.6, 1.0)  # standard deviations of a spread's logarithm
_PULLED: Final = "values are pulled so that predictions err less, which no interval knows"


@dataclass(frozen=True)
class PredictionModel:
    """The learner of a `RegressionTask` of the purpose "prediction"."""

    task: RegressionTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | MeasuredRegressionPosterior:
        """Return the next round, or the posterior when `sums` suffice.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        require_due(self.task, population, sums)
        share = SHARES[len(sums)] if len(sums) < len(SHARES) else 0.0
        if not sums:
            return RequestedRound(query=rules.centre_query(self.task), share=share)
        centres = np.clip(measured_means(sums[0]), -_FARTHEST, _FARTHEST)
        bounds = self.task.columns
        middles = np.array([each.centre for each in bounds])
        halves = np.array([each.half_range for each in bounds])
        centres = middles + halves * centres
        columns = tuple(
            each.column().model_copy(update={"centre": centre})
            for each, centre in zip(bounds, centres.tolist(), strict=True)
        )
        if len(sums) == 1:
            return RequestedRound(query=rules.length_query(self.task, columns), share=share)
        if len(sums) == 2:
            radius = measured_norm(sums[1], _WITHIN)
            return RequestedRound(query=rules.spread_query(self.task, columns, radius), share=share)
        found = Measured(
            centres=centres,
            spreads=halves * _spreads(sums[2], records_of(sums[:3])[0]),
            looseness=np.ones(len(bounds)),
            shares=np.full(len(bounds), np.nan),
            one_bound=np.zeros(len(bounds)),
            errors=np.zeros(len(bounds)),
        )
        if len(sums) == 3:
            query = self._last_query(found, sums[2], records_of(sums)[0])
            return RequestedRound(query=query, share=share)
        return self._posterior(found, sums[3], records_of(sums))

    def _last_query(
        self, found: Measured, earlier: ReleasedSum, records: float
    ) -> WeightedRowMatrix:
        """Return the query for moments; the more noise they have, the nearer the target is cut."""
        radius = rules.squared_radius_of_predictions(self.task)
        query = rules.moments_query(self.task, regressed_columns(self.task, found, 1.0), radius)
        noise = noise_sd(query, earlier, part=SHARES[2] / SHARES[3]) / records
        reach = float(np.interp(noise, _NOISE, _REACHES))
        query = rules.moments_query(self.task, regressed_columns(self.task, found, reach), radius)
        return query.model_copy(update={"unit_rows": noise > _STRONG})

    def _posterior(
        self, found: Measured, released: ReleasedSum, records: tuple[float, float]
    ) -> MeasuredRegressionPosterior:
        """Return the posterior from the last round; `records` is how many, and to which sd."""
        query = query_of(released, WeightedRowMatrix)
        limit = query.target_limit
        diagonal_sd, product_sd = (released.noise_sd[[0, -2]] / limit**2 / query.grid**2).tolist()
        moments = NoisyMoments(
            matrix=matrix_from(query, released.values) / limit**2,
            diagonal_sd=diagonal_sd,
            off_diagonal_sd=product_sd,
            records=records[0],
            records_sd=records[1],
            largest_square=(query.feature_radius / limit) ** 2,
        )
        scale = query.regressed[-1].scale
        unit = limit * rules.REACH * float(found.spreads[-1]) / scale
        told = _less_correlated(moments)
        shared = under_shared_priors(told, unit)
        mean = shared.mean.copy()
        if query.unit_rows:
            mean[1:] *= _overshoot(mean[1:], moments, told)
        prior = unit * np.append(1.0, np.full(len(mean) - 1, self.task.prior_sd))
        transform = found.to_data_units(scale / (limit * rules.REACH))
        offset = np.zeros_like(mean)
        offset[0] = found.centres[-1]
        # rows of one length leave targets as they are; others shrink them
        kept = 1.0 if query.unit_rows else math.sqrt(kept_squares(query, moments))
        reasons = few_complete((records[0], released.cohort_size))
        reasons += beyond_bounds(self.task.columns, found) + crowded(self.task.target, found)
        if not predicts_better(mean[1:], shared.covariance[1:, 1:], told.matrix[1:-1, 1:-1]):
            reasons.append(NOISE_OUTWEIGHS)
        return MeasuredRegressionPosterior(
            family="normal",
            names=("intercept", *(each.name for each in self.task.features)),
            target=self.task.target.name,
            coefficients=(offset + transform @ mean).tolist(),
            covariance=(transform @ shared.covariance @ transform.T).tolist(),
            prior_mean=tuple(offset.tolist()),
            prior_sd=tuple(np.sqrt(transform**2 @ prior**2).tolist()),
            scatter=shared.residual_sd * scale / kept,
            spreads=tuple(found.spreads[:-1].tolist()),
            records=max(1, round(records[0])),
            verdict=Verdict(kind="doubtful", reasons=(*reasons, _PULLED)),
        )


def _spreads(released: ReleasedSum, records: float) -> Floats:
    """Return each column's root mean square, in half ranges, shape (m,): geometric means.

    The logarithms of spreads are normal beforehand, about a typical one, which is unknown, as is
    how much they differ from it.
    """
    query = query_of(released, SecondMoments)
    seen = in_units(query, released.values)[:-1] / records
    error = float(released.noise_sd[0]) / query.grid**2 / records
    fits = -0.5 * ((seen[:, None] - _SPREADS**2) / error) ** 2
    likelihoods = np.exp(fits - fits.max(axis=1, keepdims=True))
    typical, unlike = np.meshgrid(np.log(_TYPICAL), _UNLIKE, indexing="ij")
    away = (np.log(_SPREADS) - typical.reshape(-1, 1)) / unlike.reshape(-1, 1)
    priors = softmax(-0.5 * away**2, axis=1)
    evidence = priors @ likelihoods.T  # of each prior for each column
    weights = softmax(np.log(np.maximum(evidence, 1e-300)).sum(axis=1))
    shares = weights[:, None] / np.maximum(evidence, 1e-300)
    posteriors = likelihoods * (shares.T @ priors)
    posteriors /= posteriors.sum(axis=1, keepdims=True)
    return np.asarray(np.exp(posteriors @ np.log(_SPREADS)))


def _shrunk(values: Floats, expected: float) -> Floats:
    """Return values shrunk towards none by James and Stein's factor.

    Noise alone has squares that are `expected` in sum.
    """
    return values * max(0.0, 1.0 - expected / max(float(np.sum(values**2)), 1e-300))


def _less_correlated(moments: NoisyMoments) -> NoisyMoments:
    """Return moments whose features are as long and correlated as noise lets be told.

    By James and Stein's factor: towards features of one length without correlations, and without
    means.
    """
    matrix, variance = moments.matrix.copy(), moments.off_diagonal_sd**2
    gram, count = matrix[1:-1, 1:-1], len(matrix) - 2
    alike = np.eye(count) * np.trace(gram) / count
    matrix[1:-1, 1:-1] = alike + _shrunk(gram - alike, variance * (count * (count + 1) - 2))
    matrix[0, 1:-1] = matrix[1:-1, 0] = _shrunk(matrix[0, 1:-1], variance * count)
    return replace(moments, matrix=matrix)


def _overshoot(slopes: Floats, moments: NoisyMoments, told: NoisyMoments) -> float:
    """Return by what to multiply slopes so that they do not predict too far, at most 1.

    `told` takes features for less correlated than `moments` say. If predictions have a larger mean
    square by these, the slopes are as much too large.
    """
    here, there = (float(slopes @ each.matrix[1:-1, 1:-1] @ slopes) for each in (moments, told))
    return min(1.0, there / here) if here > 0.0 < there else 1.0
