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
from shoal_learning.regression.design_sample import DesignSample, sample_of_moments
from shoal_learning.regression.judging import judged_scores
from shoal_learning.regression.measured import Measured, measured, records_of
from shoal_learning.regression.pooling import Likelihood, pooled_estimate
from shoal_learning.regression.score_likelihood import (
    Measurement,
    RegressionModel,
    best_point,
    curvature,
    estimate,
    scatter,
)
from shoal_protocol.queries import Column, ScoreSum, WeightedRowMatrix
from shoal_protocol.queries.scores import Family, mean_of, weight_of
from shoal_protocol.queries.sums import Scores, matrix_from, scores_from
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.regression import MeasuredRegressionPosterior, RegressionTask
from shoal_protocol.studies.regression import round_rules as rules

Floats = NDArray[np.float64]

SHARES: Final = (0.1, 0.2, 0.2, 0.2, 0.3)
"""Shares of mu^2, or of epsilon, of the five rounds."""

_REACH: Final = 4.0  # spreads to which a count is cut in the round of moments
_CUTS: Final = {"poisson": (3.0, 2.0), "negative_binomial": (4.0, 2.5)}
"""Where residuals are cut, in standard deviations: if these are known, and if noise hides them."""
_TAIL: Final = (2.0, 1.0)
"""Excess of cut residuals over an exponential tail's, mean and standard deviation.

It is 1 of Poisson's counts, 2 of gamma's, 3 of visits to doctors, where .005 to .1 are cut.
"""
_LOST_TWICE: Final = 1.2  # a lower mean makes residuals larger, of which more are cut
_FEWEST_CUT: Final = 1e-3
_MOST_LOST: Final = 0.5
_HIDDEN: Final = 2.0  # looseness of the target's spread
_DISPERSIONS: Final = (0.05, 5.0)  # by which residuals are weighted
CONSTANT_SD: Final = 5.0
BOUND: Final = 0.003  # share of a class, or mean of a count over its bound: at least
_PULL: Final = 0.06  # of a slope, by rows far out, which count less, and by what curves
_PULL_OF_COUNTS: Final = (0.18, 0.33)  # which are cut, too: as above
_PULL_FAR_OUT: Final = 0.8  # of a slope, over the share of its feature's square that is far out
_CURVED: Final = 2.0  # standard deviation of a logit from which what curves pulls more
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
            return min(max(share, BOUND), 1.0 - BOUND)
        return max(centre, BOUND * target.upper)

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

    def model(self) -> RegressionModel:
        """Return what the second round and those of scores since then measured."""
        first, sample, far = self._moments(self.sums[1])
        level, centre = self.level, np.zeros(len(self.task.columns))
        centre[0] = math.log(level / (1.0 - level) if self.family == "logistic" else level)
        return RegressionModel(
            family=self.family,
            sample=sample,
            measurements=(first, *map(self._measurement, self.sums[2:])),
            dispersion=self.dispersion,
            centre=centre,
            prior_sd=self.task.prior_sd,
            constant_sd=CONSTANT_SD,
            looseness=self.found.looseness[:-1],
            far=far,
        )

    def _moments(self, released: ReleasedSum) -> tuple[Measurement, DesignSample, Floats]:
        """Return the first scores, at no slope, and what the moments tell of rows."""
        query = released.query
        if not isinstance(query, WeightedRowMatrix):
            raise ValueError("the second round releases moments of weighted rows")
        matrix = matrix_from(query, released.values)
        product_sd = float(released.noise_sd[-2]) / query.grid**2
        over = rules.REACH * query.columns[-1].scale / (query.target_limit * self.unit)
        first = Measurement(matrix[:-1, -1] * over, product_sd * over, level=self.level)
        sample, far = sample_of_moments(
            matrix[1:-1, 1:-1] * rules.REACH**2,
            product_sd * rules.REACH**2,
            shares=self.found.shares[:-1],
            looseness=self.found.looseness[:-1],
            squared_radius=rules.default_squared_radius(self.task),
            records=self.records[0],
        )
        return first, sample, far

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

    def posterior(self, model: RegressionModel) -> MeasuredRegressionPosterior:
        """Return the estimate with noise, prior, and the records' own scatter in its covariance."""
        estimated = estimate(model)
        query, last, sds, unit = self._scores(self.sums[-1])
        at = np.array(query.point) / rules.REACH
        expected = scatter(model, estimated.mean, at=at)
        squares, squares_sd = last.squares * unit**2, float(sds.squares[0]) * unit**2
        seen, own = scatter_seen(expected, squares, squares_sd)
        roots = np.sqrt(own)
        inverse = np.linalg.inv(curvature(model, estimated.mean))
        through = estimated.influence @ inverse
        scattered = expected * np.outer(roots, roots)
        mean, covariance = estimated.mean, estimated.covariance + through @ scattered @ through.T
        lost, lost_sd = self._lost(model, mean, last.cut, float(sds.cut))
        transform = self.found.to_data_units()
        prior, factor = model.own_sds(), None
        if self.task.pooled is not None:
            wide = estimated.wide
            likelihood = Likelihood.of(wide.mean, wide.covariance, model.centre, prior)
            pooled = pooled_estimate(
                self.task,
                self.found,
                likelihood.scattered(inverse @ scattered @ inverse.T),
                prior_mean=model.centre,
                prior_sd=prior,
                shared_sds=model.shared_sds,
                unit=1.0,
                data_unit=1.0,
            )
            mean, covariance, factor = pooled.mean, pooled.covariance, pooled.factor
            prior = pooled.prior_sd
        mean = mean - np.append(math.log1p(-lost), np.zeros(len(mean) - 1))
        if self.family == "logistic":
            part = part_pulled(_PULL, float((model.sample.rows @ mean).std()))
        else:
            part = _PULL_OF_COUNTS[self.hidden]
        pull = np.append(lost_sd / (1.0 - lost), pulled(model.sample, model.far, part, mean[1:]))
        covariance = covariance + np.diag(pull**2)
        whole = transform @ covariance @ transform.T
        return MeasuredRegressionPosterior(
            family=self.task.family,
            names=("intercept", *(each.name for each in self.task.features)),
            target=self.task.target.name,
            coefficients=tuple((transform @ mean).tolist()),
            covariance=tuple(tuple(row) for row in whole.tolist()),
            prior_mean=tuple(model.centre.tolist()),
            prior_sd=tuple(np.sqrt(transform**2 @ prior**2).tolist()),
            scatter=seen,
            spreads=tuple(self.found.spreads[:-1].tolist()),
            records=max(1, round(self.records[0])),
            pooled=factor,
            verdict=judged_scores(
                self.task,
                self.found,
                model,
                mean=mean,
                covariance=covariance,
                expected=estimated.expected,
                asked_at=at,
                cut=(last.cut / self.records[0], sds.cut / self.records[0]),
            ),
        )

    def _lost(
        self, model: RegressionModel, mean: Floats, cut: float, cut_sd: float
    ) -> tuple[float, float]:
        """Return what share of the mean of counts is lost with cut residuals, and its deviation.

        Only those far above their mean are cut. Of a tail that falls like exp(-r / t), of which a
        share s is beyond c, it is s c / log(1 / s).
        """
        if self.family == "logistic":
            return 0.0, 0.0
        means = mean_of(self.family, model.sample.rows @ mean)
        whole = float(np.mean(means * weight_of(self.family, means, self.dispersion)))
        share, error = max(cut, 0.0) / self.records[0], cut_sd / self.records[0]
        share *= share**2 / (share**2 + error**2)  # noise alone is no cut residuals
        each = self.cut / -math.log(min(max(share, _FEWEST_CUT), _MOST_LOST)) * _LOST_TWICE / whole
        lost = min(_TAIL[0] * each * share, _MOST_LOST)
        return lost, each * math.hypot(_TAIL[1] * share, _TAIL[0] * error)


def part_pulled(part: float, predictors_sd: float) -> float:
    """Return by what `part` of it a slope may be pulled: more where classes are nearly apart.

    There scores hang on how features are distributed, which the sample has by moments alone.
    """
    return part * max(1.0, predictors_sd / _CURVED) ** 2


def pulled(sample: DesignSample, far: Floats, part: float, slopes: Floats) -> Floats:
    """Return by how much `slopes` may be pulled, shape (q,): by `part`, and by values far out.

    `far`, shape (q,), is the share of each feature's mean square that is far out.

    A feature has another slope far out than where most rows are, which moves those of features
    that it correlates with.
    """
    correlations = np.atleast_2d(np.corrcoef(sample.rows[:, 1:].T))
    far_out = correlations**2 @ (_PULL_FAR_OUT * far * slopes) ** 2
    return np.asarray(np.sqrt((part * slopes) ** 2 + far_out))


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
