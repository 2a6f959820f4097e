"""Generalised linear models from scores at three points, in units that the first round measured.

The moments of weighted rows are the first scores, at no slope at all, and say how the features are
distributed; each round of scores is asked where those before it lead to.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_learning.contract import RequestedRound
from shoal_learning.regression.design_sample import DesignSample, measured_sample
from shoal_learning.regression.judging import judged_scores
from shoal_learning.regression.measured import Measured, measured, records_of
from shoal_learning.regression.score_likelihood import (
    Measurement,
    ScoreModel,
    best_point,
    curvature,
    estimate,
    scatter,
)
from shoal_protocol.queries import Column, ScoreSum, WeightedRowMatrix
from shoal_protocol.queries.scores import Family
from shoal_protocol.queries.sums import Scores, matrix_from, scores_from
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.regression import MeasuredRegressionPosterior, RegressionTask
from shoal_protocol.studies.regression import round_rules as rules

Floats = NDArray[np.float64]

SHARES: Final = (0.1, 0.2, 0.2, 0.2, 0.3)
"""Shares of mu^2, or of epsilon, of the five rounds."""

_REACH: Final = 4.0  # spreads to which a count is cut in the round of moments
_CUTS: Final = {"poisson": (3.0, 2.4), "negative_binomial": (4.0, 3.0)}
"""Where residuals are cut, in standard deviations: if these are known, and if noise hides them."""
_HIDDEN: Final = 2.0  # looseness of the target's spread
_DISPERSIONS: Final = (0.05, 5.0)  # by which residuals are weighted
_CONSTANT_SD: Final = 5.0
_BOUND: Final = 0.003  # share of a class, or mean of a count over its bound: at least
_PULL: Final = 0.1  # of a slope, by rows far out, which count less, and by what curves
_PULL_OF_COUNTS: Final = (0.15, 0.25)  # which are cut, too: as above
_CURVED: Final = 2.0  # standard deviation of a logit from which what curves pulls more
_LEAST_SEEN: Final = 0.5  # of a feature's mean square
_UNEVEN: Final = 0.3  # relative differences of scatter between coordinates that are expected
_PRIOR_SCATTER_SD: Final = 0.7
_LEAST_SCATTER: Final = 0.25


@dataclass(frozen=True)
class GeneralisedModel:
    """The learner of a `RegressionTask` of another family than "normal"."""

    task: RegressionTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | MeasuredRegressionPosterior:
        """Return the round after these, or the posterior."""
        if not sums:
            return RequestedRound(query=rules.first_query(self.task), share=SHARES[0])
        known = _Known(self.task, sums)
        if len(sums) == 1:
            return RequestedRound(query=known.moments_query, share=SHARES[1])
        model = known.model()
        if len(sums) == len(SHARES):
            return known.posterior(model)
        query = rules.score_query(
            self.task,
            known.features,
            point=tuple(best_point(model).tolist()),
            dispersion=known.dispersion,
            residual_cut=known.cut,
        )
        return RequestedRound(query=query, share=SHARES[len(sums)])


@dataclass(frozen=True)
class _Known:
    """What the sums of a job so far tell, one or more."""

    task: RegressionTask
    sums: Sequence[ReleasedSum]

    @property
    def family(self) -> Family:
        if self.task.family == "normal":
            raise ValueError("a linear model has another learner")
        return self.task.family

    @cached_property
    def records(self) -> tuple[float, float]:
        return records_of(self.sums)

    @cached_property
    def found(self) -> Measured:
        """Columns as the first round alone tells: the same from round to round."""
        return measured(self.sums[0], self.task.columns, records_of(self.sums[:1])[0])

    @property
    def features(self) -> tuple[Column, ...]:
        return self.found.features(self.task.features)

    @cached_property
    def level(self) -> float:
        """The target's mean, of two classes the upper one's share, away from where links end."""
        centre, target = float(self.found.centres[-1]), self.task.target
        if self.family == "logistic":
            share = (centre - target.lower) / (2.0 * target.half_range)
            return min(max(share, _BOUND), 1.0 - _BOUND)
        return max(centre, _BOUND * target.upper)

    @property
    def spread(self) -> float:
        """The target's standard deviation, in the same unit."""
        if self.family == "logistic":
            return math.sqrt(self.level * (1.0 - self.level))
        return float(self.found.spreads[-1])

    @property
    def unit(self) -> float:
        """One class more, or one count, in the data's units."""
        return 2.0 * self.task.target.half_range if self.family == "logistic" else 1.0

    @cached_property
    def dispersion(self) -> float:
        """The dispersion by which residuals are weighted: from the target alone."""
        if self.family != "negative_binomial":
            return self.level
        seen = (self.spread**2 - self.level) / self.level**2
        return min(max(seen, _DISPERSIONS[0]), _DISPERSIONS[1])

    @property
    def hidden(self) -> int:
        """1 if noise hides how far the target spreads, else 0."""
        return int(self.found.looseness[-1] > _HIDDEN)

    @property
    def cut(self) -> float:
        """Where weighted residuals are cut: beyond what nearly all of them are."""
        if self.family == "logistic":
            return 1.0
        level = self.level
        times = _CUTS[self.family][self.hidden]
        if self.family == "poisson":
            return times * max(self.spread, math.sqrt(level))
        return (
            times * math.sqrt(level + self.dispersion * level**2) / (1.0 + self.dispersion * level)
        )

    @property
    def moments_query(self) -> WeightedRowMatrix:
        """The query of the second round: the target about its level, within what it reaches."""
        target = self.task.target
        reach = self.unit if self.family == "logistic" else _REACH * self.spread
        column = Column(
            name=target.name,
            centre=self.level
            if self.family != "logistic"
            else target.lower + self.level * self.unit,
            scale=min(reach, 2.0 * target.half_range),
            term=target.term,
        )
        radius = rules.default_squared_radius(self.task)
        return rules.moments_query(self.task, (*self.features, column), radius)

    def model(self) -> ScoreModel:
        """Return what the second round and those of scores since then measured."""
        first, sample, far = self._moments(self.sums[1])
        level = self.level
        return ScoreModel(
            family=self.family,
            sample=sample,
            measurements=(first, *map(self._measurement, self.sums[2:])),
            dispersion=self.dispersion,
            centre=math.log(level / (1.0 - level) if self.family == "logistic" else level),
            prior_sd=self.task.prior_sd,
            constant_sd=_CONSTANT_SD,
            looseness=self.found.looseness[:-1],
            far=far,
        )

    def _moments(
        self, released: ReleasedSum
    ) -> tuple[Measurement, DesignSample, NDArray[np.bool_]]:
        """Return the first scores, at no slope, the sample of rows, and which features are far."""
        query = released.query
        if not isinstance(query, WeightedRowMatrix):
            raise ValueError("the second round releases moments of weighted rows")
        matrix = matrix_from(query, released.values)
        product_sd = float(released.noise_sd[-2]) / query.grid**2
        over = rules.REACH * query.columns[-1].scale / (query.target_limit * self.unit)
        first = Measurement(matrix[:-1, -1] * over, product_sd * over, level=self.level)
        sample, seen = measured_sample(
            self.found,
            matrix[1:-1, 1:-1] * rules.REACH**2,
            product_sd * rules.REACH**2,
            squared_radius=rules.default_squared_radius(self.task),
            records=self.records[0],
        )
        return first, sample, seen < _LEAST_SEEN

    def _measurement(self, released: ReleasedSum) -> Measurement:
        query, found, sds, unit = self._scores(released)
        point = np.array(query.point) / rules.REACH
        return Measurement(found.scores * unit, float(sds.scores[0]) * unit, point)

    def _scores(self, released: ReleasedSum) -> tuple[ScoreSum, Scores, Scores, float]:
        """Return a round's query, its sums, their noise, and the largest score, in spreads."""
        query = released.query
        if not isinstance(query, ScoreSum):
            raise ValueError("rounds after the second release scores")
        unit = math.sqrt(rules.default_squared_radius(self.task)) * query.residual_cut
        found = scores_from(query, released.values.astype(np.float64))
        return query, found, scores_from(query, released.noise_sd), unit

    def posterior(self, model: ScoreModel) -> MeasuredRegressionPosterior:
        """Return the estimate with noise, prior, and the records' own scatter in its covariance."""
        estimated = estimate(model)
        query, last, sds, unit = self._scores(self.sums[-1])
        at = np.array(query.point) / rules.REACH
        expected = scatter(model, estimated.mean, at=at, dispersion=model.dispersion)
        squares, squares_sd = last.squares * unit**2, float(sds.squares[0]) * unit**2
        pooled, own = scatter_seen(expected, squares, squares_sd)
        roots = np.sqrt(own)
        inverse = np.linalg.inv(curvature(model, estimated.mean))
        through = estimated.influence @ inverse
        pulled = self._pull(model, estimated.mean) * estimated.mean
        pulled[0] = 0.0
        covariance = (
            estimated.covariance
            + through @ (expected * np.outer(roots, roots)) @ through.T
            + np.diag(pulled**2)
        )
        transform = self.found.to_data_units()
        prior = model.precision() ** -0.5
        centre = np.zeros(len(prior))
        centre[0] = model.centre
        whole = transform @ covariance @ transform.T
        return MeasuredRegressionPosterior(
            family=self.task.family,
            names=("intercept", *(each.name for each in self.task.features)),
            target=self.task.target.name,
            coefficients=tuple((transform @ estimated.mean).tolist()),
            covariance=tuple(tuple(row) for row in whole.tolist()),
            prior_mean=tuple(centre.tolist()),
            prior_sd=tuple(np.sqrt(transform**2 @ prior**2).tolist()),
            scatter=pooled,
            spreads=tuple(self.found.spreads[:-1].tolist()),
            records=max(1, round(self.records[0])),
            verdict=judged_scores(
                self.task,
                self.found,
                model,
                mean=estimated.mean,
                covariance=covariance,
                expected=estimated.expected,
                asked_at=at,
                cut=(last.cut / self.records[0], sds.cut / self.records[0]),
            ),
        )

    def _pull(self, model: ScoreModel, mean: Floats) -> float:
        """Return by what part of it a slope may be pulled: more where classes are nearly apart.

        There scores hang on how features are distributed, which the sample has by moments alone.
        """
        if self.family != "logistic":
            return _PULL_OF_COUNTS[self.hidden]
        return _PULL * max(1.0, float((model.sample.rows @ mean).std()) / _CURVED) ** 2


def scatter_seen(expected: Floats, squares: Floats, squares_sd: float) -> tuple[float, Floats]:
    """Return how many times more than expected scores scatter: in all, and each, shape (p,).

    `expected`, shape (p, p), is what the family says, and `squares`, shape (p,), what was seen,
    with noise of `squares_sd`.
    """
    whole, error = float(np.trace(expected)), squares_sd * math.sqrt(len(squares))
    precision = (whole / error) ** 2
    pooled = float(squares.sum()) / whole * precision + _PRIOR_SCATTER_SD**-2.0
    pooled = max(pooled / (precision + _PRIOR_SCATTER_SD**-2.0), _LEAST_SCATTER)
    own = np.diagonal(expected)
    trusted = 1.0 / (1.0 + (squares_sd / own / (_UNEVEN * pooled)) ** 2)
    each = pooled + trusted * (squares / own - pooled)
    return pooled, np.maximum(each, _LEAST_SCATTER)
