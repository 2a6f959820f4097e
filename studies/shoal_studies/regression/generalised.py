"""Learns generalised linear models in five rounds: columns, moments of rows, and scores thrice.

The first round measures each column's mean and spread, which are the units of everything after it.
The second sums products of weighted rows. They say how the features are distributed, and they are
the scores with all slopes at zero. Each later round asks for scores at the point where the sums so
far put the coefficients.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from shoal_protocol.queries import Column, ScoreSum, WeightedRowMatrix
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.scores import LARGEST_COORDINATE, Family, mean_of, weight_of
from shoal_protocol.queries.sums import Scores, matrix_from, scores_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue import regression as rules
from shoal_studies.catalogue.measurements import query_of
from shoal_studies.catalogue.regression import MeasuredRegressionPosterior, RegressionTask
from shoal_studies.contract import RequestedRound
from shoal_studies.regression import design_sample
from shoal_studies.regression.design_sample import (
    DesignSample,
    levels_of,
    sample_of_moments,
    shrunk,
)
from shoal_studies.regression.judging import judged_scores
from shoal_studies.regression.measured import (
    Likelihood,
    RegressionSums,
    has_two_values,
    pooled_estimate,
)
from shoal_studies.regression.score_likelihood import (
    Measurement,
    RegressionModel,
    best_estimate,
    curvature,
    estimate,
    scatter,
)

SHARES: Final = (0.1, 0.2, 0.2, 0.2, 0.3)
"""The five rounds' shares of the job's mu^2, or of its epsilon under Laplace noise."""

_REACH: Final = 4.0  # the round of moments cuts the target this many spreads from its mean
_CUTS: Final = {"poisson": (3.0, 2.0), "negative_binomial": (4.0, 2.5), "gamma": (4.0, 3.0)}
"""Residuals are cut at this many standard deviations: if these are known; if noise hides them."""
_HIDDEN: Final = 2.0  # noise hides the target's spread if its looseness is above this
_DISPERSIONS: Final = (0.05, 5.0)  # limits of the dispersion by which residuals are weighted
_FEW_CUT, _LOOSER = 0.01, 1.6  # if a larger share of residuals is cut, the next cut is looser
_RELATIVE_SPREADS: Final = ((0.05, 1.5), (0.05, 1.0))  # limits: spread known; hidden by noise
_OFFSETS_ERROR: Final = 0.25  # relative error of what offsets do to means of counts
_SMALL: Final = 0.1  # gamma: this share of the mean is added to means that residuals are divided by
_SHIFTED: Final = 1.5  # weighted records' means lie at most this many spreads from the plain ones
CONSTANT_SD: Final = 5.0  # standard deviation of the constant's prior
BOUND: Final = 0.003  # least share of a class, and least mean of a count over its upper bound
_PULL: Final = 0.06  # relative error of a slope that rows far out and curvature can cause
_PULLS: Final = {"poisson": (0.18, 0.33), "negative_binomial": (0.18, 0.33), "gamma": (0.1, 0.1)}
"""The same for targets whose residuals are cut: if the spread is known; if noise hides it."""
_PULLED_TWICE: Final = 2.0  # factor on it if records have weights: only their moments are known


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
        job = _JobSums(self.task, sums)
        if len(sums) == 1:
            return RequestedRound(query=job.moments_query, share=SHARES[1])
        model = job.model()
        if len(sums) == len(SHARES):
            return job.posterior(model)
        query = rules.score_query(
            self.task,
            job.features,
            point=(*best_estimate(model)[0].tolist(), *job.offset),
            dispersion=job.dispersion,
            residual_cut=job.cut,
        )
        return RequestedRound(query=query, share=SHARES[len(sums)])


class _JobSums(RegressionSums):
    """Everything that follows from the sums released so far, one or more."""

    @property
    def family(self) -> Family:
        if self.task.family == "normal":
            raise ValueError("a linear model has another learner")
        return self.task.family

    @property
    def offset(self) -> tuple[float, ...]:
        """The offset's coefficient per spread of the offset, (1,); () without an offset."""
        return () if self.task.offset is None else (float(self.columns.spreads[-2]),)

    @property
    def size(self) -> int:
        """The number of coefficients, p: the constant and one for each feature."""
        return 1 + len(self.task.features)

    @cached_property
    def level(self) -> float:
        """The target's mean, or the upper class's share, kept within the range of the link."""
        centre, target = float(self.columns.centres[-1]), self.task.target
        if self.family == "logistic":
            share = (centre - target.lower) / (2.0 * target.half_range)
            return min(max(share, BOUND), 1.0 - BOUND)
        return max(centre, BOUND * target.upper)

    @property
    def spread(self) -> float:
        """The target's standard deviation, in the unit of `level`."""
        if self.family == "logistic":
            return math.sqrt(self.level * (1.0 - self.level))
        return float(self.columns.spreads[-1])

    @property
    def unit(self) -> float:
        """The distance of two classes, or of two counts, in the data's units."""
        return 2.0 * self.task.target.half_range if self.family == "logistic" else 1.0

    @cached_property
    def dispersion(self) -> float:
        """The dispersion by which residuals are weighted, estimated from the target alone."""
        if self.family == "gamma":
            return min(_SMALL * self.level, LARGEST_COORDINATE)
        if self.family != "negative_binomial":
            return self.level
        seen = (self.spread**2 - self.level) / self.level**2
        return min(max(seen, _DISPERSIONS[0]), _DISPERSIONS[1])

    @property
    def relative_spread(self) -> float:
        """The target's standard deviation over its mean, within `_RELATIVE_SPREADS`."""
        least, most = _RELATIVE_SPREADS[self.hides_spread]
        return min(max(self.spread / self.level, least), most)

    @property
    def hides_spread(self) -> int:
        """1 if noise hides the target's spread, else 0: an index into the pairs above."""
        return int(self.columns.looseness[-1] > _HIDDEN)

    @property
    def cut(self) -> float:
        """The largest weighted residual that is not cut: nearly all are smaller."""
        if self.family == "logistic":
            return 1.0
        level = self.level
        times = _CUTS[self.family][self.hides_spread]
        if self.family == "poisson":
            return times * max(self.spread, math.sqrt(level))
        if self.family == "gamma":
            cut = times * self.relative_spread
            for released in self.sums[2:]:
                # the share of cut residuals is measured better than the spread
                query, sums, sds, _ = self._scores(released)
                is_near = sums.cut - sds.cut > _FEW_CUT * self.records[0]
                cut = query.residual_cut * (_LOOSER if is_near else 1.0)
            return cut
        return (
            times * math.sqrt(level + self.dispersion * level**2) / (1.0 + self.dispersion * level)
        )

    @property
    def moments_query(self) -> WeightedRowMatrix:
        """The second round's query, with the target centred at its level and cut at `_REACH`."""
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
        """Return the model with all that the second and later rounds measured."""
        first, sample, far = self._moments(self.sums[1])
        level, centre = self.level, np.zeros(self.size)
        centre[0] = math.log(level / (1.0 - level) if self.family == "logistic" else level)
        return RegressionModel(
            family=self.family,
            sample=sample,
            measurements=(first, *map(self._measurement, self.sums[2:])),
            dispersion=self.dispersion,
            centre=centre,
            prior_sd=self.task.prior_sd,
            constant_sd=CONSTANT_SD,
            looseness=self.columns.looseness[: self.size - 1],
            far=far,
        )

    def _moments(self, released: ReleasedSum) -> tuple[Measurement, DesignSample, Floats]:
        """Return scores at zero slopes, a sample of rows, and the `far` shares of `_sample`."""
        query = query_of(released, WeightedRowMatrix)
        matrix = matrix_from(query, released.values)
        product_sd = float(released.noise_sd[-2]) / query.grid**2
        over = rules.REACH * query.regressed[-1].scale / (query.target_limit * self.unit)
        gram, noise = matrix[:-1, :-1] * rules.REACH**2, product_sd * rules.REACH**2
        sample, far = self._sample(gram, noise)
        scores = matrix[: self.size, -1] * over
        error = self._error_of_offsets(sample)
        first = Measurement(scores, product_sd * over, level=self.level, error=error)
        return first, sample, far

    def _error_of_offsets(self, sample: DesignSample) -> Floats:
        """Return how far the offsets may shift the scores at zero slopes, shape (p,)."""
        if not self.offset or self.family == "logistic":
            return np.zeros(self.size)
        factors = np.exp(sample.offsets)
        away = sample.moment_weights * (factors / np.average(factors, weights=sample.sizes) - 1.0)
        errors = np.abs(sample.total(away))
        errors[0] = sample.total(np.abs(away))[0]
        return _OFFSETS_ERROR * self.level * errors

    def _sample(self, gram: Floats, noise_sd: float) -> tuple[DesignSample, Floats]:
        """Return a sample of rows with the Gram matrix of constant and predictors, (q + 1, q + 1).

        The second value, shape (p - 1,), is the share of each feature's mean square that rows far
        out contribute.
        """
        records = self.records[0] * self.weighing[0]
        sums, gram = gram[0, 1:], gram[1:, 1:]
        means = np.zeros(len(gram))
        if self.task.weights is not None:
            sums = shrunk(sums, noise_sd**2 * len(sums))
            means = np.clip(sums / records, -_SHIFTED, _SHIFTED)
            gram = gram - records * np.outer(means, means)
        sample, far = sample_of_moments(
            gram,
            noise_sd,
            shares=self.columns.shares[:-1],
            looseness=self.columns.looseness[:-1],
            squared_radius=rules.default_squared_radius(self.task),
            records=records,
            levels=levels_of(self.task.features),
        )
        if self.task.weights is not None:
            sample = sample.with_means(means)
        for coefficient in self.offset:
            sample = sample.with_offset(coefficient)
        return sample, far[: self.size - 1]

    def _measurement(self, released: ReleasedSum) -> Measurement:
        query, sums, sds, unit = self._scores(released)
        point = np.array(query.point)[: self.size] / rules.REACH
        scores = sums.scores[: self.size] * unit
        return Measurement(scores, float(sds.scores[0]) * unit, point)

    def _scores(self, released: ReleasedSum) -> tuple[ScoreSum, Scores, Scores, float]:
        """Return a round's query, its sums, their noise, and the largest possible score.

        The sums are in units of the largest score, which itself is in spreads.
        """
        query = query_of(released, ScoreSum)
        unit = math.sqrt(rules.default_squared_radius(self.task)) * query.residual_cut
        sums = scores_from(query, released.values.astype(np.float64))
        return query, sums, scores_from(query, released.noise_sd), unit

    def posterior(self, model: RegressionModel) -> MeasuredRegressionPosterior:
        """Return the posterior; its covariance includes noise, prior and the records' scatter."""
        estimated = estimate(model)
        query, last, sds, unit = self._scores(self.sums[-1])
        at = np.array(query.point)[: self.size] / rules.REACH
        expected = scatter(model, estimated.mean, at=at) * self.weighing[1]
        relative = self.relative_spread**2 if self.family == "gamma" else 1.0
        expected *= relative
        squares, squares_sd = last.squares[: self.size] * unit**2, float(sds.squares[0]) * unit**2
        seen, seen_sd, own = design_sample.scatter_seen(expected, squares, squares_sd)
        roots = np.sqrt(own)
        inverse = np.linalg.inv(curvature(model, estimated.mean))
        through = estimated.influence @ inverse
        mean = estimated.mean
        lost, lost_sd = self._lost(model, mean, query.residual_cut, (last.cut, sds.cut))
        scattered = expected * np.outer(roots, roots)
        if self.family == "gamma":  # only positive targets have tails this heavy
            spread = (self.spread / self.level) ** 2 - 2.0 * query.residual_cut * lost
            scattered *= design_sample.beyond_cut(model.sample, mean, spread, seen * relative)
        covariance = estimated.covariance + through @ scattered @ through.T
        transform = self.columns.to_data_units()[: self.size, : self.size]
        shift = np.zeros(self.size)
        if self.offset:
            shift[0] = -self.columns.centres[-2]
        prior, factor = model.own_sds(), None
        if self.task.pooled is not None:
            wide = estimated.wide
            likelihood = Likelihood.of(wide.mean, wide.covariance, model.centre, prior)
            pooled = pooled_estimate(
                self.task,
                self.columns,
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
            part = design_sample.part_pulled(_PULL, float(model.sample.predictors(mean).std()))
        else:
            part = _PULLS[self.family][self.hides_spread]
        if self.task.weights is not None:
            part *= _PULLED_TWICE
        pull = np.append(
            lost_sd / (1.0 - lost), design_sample.pulled(model.sample, model.far, part, mean[1:])
        )
        covariance = covariance + np.diag(pull**2)
        return MeasuredRegressionPosterior(
            family=self.task.family,
            names=("intercept", *(each.name for each in self.task.features)),
            target=self.task.target.name,
            offset=None if self.task.offset is None else self.task.offset.name,
            weights=None if self.task.weights is None else self.task.weights.name,
            coefficients=tuple((transform @ mean + shift).tolist()),
            covariance=(transform @ covariance @ transform.T).tolist(),
            prior_mean=tuple((model.centre + shift).tolist()),
            prior_sd=tuple(np.sqrt(transform**2 @ prior**2).tolist()),
            scatter=seen * relative,
            scatter_sd=seen_sd * relative,
            spreads=tuple(self.columns.spreads[: self.size - 1].tolist()),
            records=max(1, round(self.records[0])),
            pooled=factor,
            verdict=judged_scores(
                self.task,
                self.columns,
                model,
                mean=mean,
                covariance=covariance,
                expected=estimated.expected,
                asked_at=at,
                cut=(last.cut / self.records[0], sds.cut / self.records[0]),
                has_two_values=has_two_values(self.sums[0], len(self.columns.centres) - 1),
                complete=(self.records[0], self.sums[-1].cohort_size),
                mean_weight=self.weighing[0],
            ),
        )

    def _lost(
        self, model: RegressionModel, mean: Floats, limit: float, cut: tuple[float, float]
    ) -> tuple[float, float]:
        """Return the share of the target's mean that cutting residuals removed, and its deviation.

        Residuals were cut at `limit`; `cut` has the number of cut residuals and its noise.
        """
        if self.family == "logistic":
            return 0.0, 0.0
        means = mean_of(self.family, model.sample.predictors(mean))
        weighted = means * weight_of(self.family, means, self.dispersion)
        whole = float(np.average(weighted, weights=model.sample.sizes))
        share, error = max(cut[0], 0.0) / self.records[0], cut[1] / self.records[0]
        return design_sample.lost_with_cut(share, error, limit / whole)
