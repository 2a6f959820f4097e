"""Learns regressions of all families in five rounds: columns, moments of rows, and scores thrice.

The first round measures each column's mean and spread, which are the units of everything after it.
The second sums products of weighted rows, which say how the features are distributed; with the
target they are scores with all slopes at zero. Each later round asks for scores at the point where
the sums so far put the coefficients, in a basis in which features are uncorrelated, as far as noise
lets it be told.

What the sums tell is read under many plausible designs, of which the posterior is a mixture.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Generic, Self, TypeVar

import numpy as np
from scipy.special import softmax

from shoal_protocol.queries import (
    ClassScoreSum,
    Column,
    ColumnMoments,
    HazardScoreSum,
    Query,
    ScoreSum,
    WeightedRowMatrix,
)
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.scores import LARGEST_COORDINATE
from shoal_protocol.queries.sums import in_units, matrix_from, scores_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue import regression as rules
from shoal_studies.catalogue.measurements import noise_ratio, query_of
from shoal_studies.catalogue.multinomial_regression import MultinomialRegressionTask
from shoal_studies.catalogue.piecewise_exponential import PiecewiseExponentialTask
from shoal_studies.catalogue.regression import MeasuredRegressionPosterior, RegressionTask
from shoal_studies.catalogue.study import require_due
from shoal_studies.contract import RequestedRound
from shoal_studies.posteriors.base import BasePosterior
from shoal_studies.quasi_likelihood import averaged
from shoal_studies.regression import constants
from shoal_studies.regression.families import FAMILIES, NEAR, TargetFamily
from shoal_studies.regression.judging import (
    RegressionEvidence,
    judged_regression,
    lost_squares,
)
from shoal_studies.regression.measured import (
    Measured,
    inverted,
    measured,
    pooled_estimate,
    records_of,
)
from shoal_studies.regression.plausible_designs import (
    DesignRows,
    PlausibleDesigns,
    ReleasedDesign,
    released_design,
)
from shoal_studies.regression.scores import (
    DesignLikelihood,
    Fit,
    NormalPrior,
    Scores,
    TargetScores,
    log_dispersions,
    sampling_covariance,
    scatter_seen,
)

ScoreQuery = ScoreSum | ClassScoreSum | HazardScoreSum
ScoresT = TypeVar("ScoresT", bound=Scores)

_UNCUT: Final = 1e40  # a cut that nothing reaches, in any unit
_SEED: Final = 1703_01106
_SURELY_WITHIN: Final = 6.0  # standard deviations of a dispersion
_ROUGHLY, NEARLY = 0.3, 0.1  # errors of a design while fits are rough
_SURELY: Final = 2.0  # standard deviations of noise
NARROW: Final = 2  # rounds before that of scores which is not widened
_LEAST_WEIGHT: Final = 0.01  # mean weight over the largest
_FEW: Final = 4  # designs by which errors of designs, and priors, are told apart


TaskT = TypeVar(
    "TaskT", bound=RegressionTask | MultinomialRegressionTask | PiecewiseExponentialTask
)


@dataclass(frozen=True)
class ScoredJob(ABC, Generic[TaskT]):
    """What follows from the sums of a regression so far: the next round, or the posterior."""

    task: TaskT
    sums: Sequence[ReleasedSum]

    @cached_property
    def records(self) -> tuple[float, float]:
        """How many records there are, and the standard deviation of that."""
        return records_of(self.sums)

    @property
    def weighted_records(self) -> float:
        """How many records there are, each by its weight."""
        return self.records[0]

    @cached_property
    def all_columns(self) -> Measured:
        """All columns as the first round measured them; later rounds do not change this."""
        return measured(self.sums[0], self.task.columns, records_of(self.sums[:1])[0])

    @property
    def features(self) -> tuple[Column, ...]:
        """The features in spreads."""
        return self.all_columns.features(self.task.features)

    @property
    def query(self) -> Query:
        """The next round's query."""
        match len(self.sums):
            case 0:
                return rules.first_query(self.task)
            case 1:
                return self.moments_query
        return self.score_query()

    @property
    @abstractmethod
    def moments_query(self) -> Query:
        """The second round's query."""

    @abstractmethod
    def score_query(self) -> Query:
        """Return the query for scores where the sums so far lead to."""

    @abstractmethod
    def posterior(self) -> BasePosterior:
        """Return the posterior: a mixture over plausible designs, with the records' own scatter."""

    @property
    @abstractmethod
    def released(self) -> ReleasedDesign:
        """What the first two rounds tell of the rows."""

    @property
    @abstractmethod
    def scores(self) -> Sequence[Scores]:
        """Sums of scores that tell of coefficients."""

    @property
    @abstractmethod
    def prior_mean(self) -> Floats:
        """The prior's mean, shape (p,): no slopes."""

    @abstractmethod
    def prior(self, covariance: Floats, part: float) -> NormalPrior:
        """Return the prior by the features' covariance and the part of its deviation."""

    def designs(self, count: int) -> tuple[list[DesignRows], np.random.Generator]:
        """Return so many plausible designs, and the generator that drew them."""
        generator = np.random.default_rng([_SEED, len(self.sums)])  # public: no privacy needs it
        return PlausibleDesigns(self.released, generator).draws(count), generator

    def mixture(self, count: int) -> "Mixture":
        """Return fits under so many plausible designs, from where the first design leads."""
        designs, generator = self.designs(count)
        dispersion, dispersion_sd, near = self.start(designs[0])
        under = [self.under(each, dispersion, near) for each in designs]
        mixture = Mixture.of(under, self.prior, generator)
        return replace(mixture, dispersion=dispersion, dispersion_sd=dispersion_sd)

    def start(self, design: DesignRows) -> tuple[float, float, Floats]:
        """Return the dispersion, its deviation, and coefficients to start from, under a design.

        Targets scatter as they must, unless a family has dispersions.
        """
        prior = self.prior(design.covariance, constants.PRIOR_PARTS[2])
        return 1.0, 0.0, self.under(design, 1.0, self.prior_mean).fit(prior, NEARLY).mean

    def under(self, design: DesignRows, dispersion: float, start: Floats) -> DesignLikelihood:
        """Return the likelihood of coefficients in spreads."""
        return DesignLikelihood(self.scores, self.weighted_records, design, dispersion, start)

    def noise(self, query: ScoreQuery) -> float:
        """Return the noise of the next round, which asks `query`, in that one's units."""
        part = constants.SHARES[len(self.sums) - 1] / constants.SHARES[len(self.sums)]
        sensitivity = query.design(self.sums[-1].mechanism).sensitivity / query.grid**2
        return noise_ratio(self.sums[-1], part=part) * sensitivity

    def cheap_reach(self, query: ScoreQuery, records: float) -> float:
        """Return how long scores may be for noise to be cheap, over one record's own scatter."""
        return constants.CHEAP_NOISE * math.sqrt(records) / self.noise(query)


@dataclass(frozen=True)
class ScoredRegression(Generic[TaskT]):
    """The learner of a regression in five rounds; `job` says what follows from its sums."""

    task: TaskT
    job: Callable[[TaskT, Sequence[ReleasedSum]], ScoredJob[TaskT]]

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | BasePosterior:
        """Return the next round, or the posterior when `sums` suffice.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        require_due(self.task, population, sums)
        job = self.job(self.task, sums)
        if len(sums) == self.task.rounds:
            return job.posterior()
        return RequestedRound(query=job.query, share=constants.SHARES[len(sums)])


@dataclass(frozen=True)
class Mixture:
    """Fits under plausible designs, shape (k,), with weights that sum to 1.

    `error_odds` are posterior probabilities of `constants.DESIGN_ERRORS`.
    """

    designs: Sequence[DesignRows]
    fits: Sequence[Fit]
    weights: Floats
    error_odds: Floats
    dispersion: float = 1.0
    dispersion_sd: float = 0.0

    @classmethod
    def of(
        cls,
        likelihoods: Sequence[DesignLikelihood],
        prior: Callable[[Floats, float], NormalPrior],
        generator: np.random.Generator,
    ) -> Self:
        """Return the mixture of fits by design, its error, and part of the prior's deviation.

        `prior` is that of coefficients by the features' covariance and the part.
        """
        errors, parts = constants.DESIGN_ERRORS, constants.PRIOR_PARTS

        def fit(likelihood: DesignLikelihood, error: float, part: float) -> Fit:
            return likelihood.fit(prior(likelihood.design.covariance, part), error)

        both = [(error, part) for error in errors for part in parts]
        few = [[fit(each, *pair) for each in likelihoods[:_FEW]] for pair in both]
        evidence = np.array(
            [np.logaddexp.reduce([one.log_evidence for one in each]) for each in few]
        )
        odds = softmax(evidence)
        if len(likelihoods) == 1:
            fits, weights = [each for [each] in few], odds
        else:
            picked = generator.choice(odds.size, size=len(likelihoods), p=odds)
            fits = [fit(likelihoods[place], *both[pair]) for place, pair in enumerate(picked)]
            logs = np.array([each.log_evidence for each in fits])
            weights = _tempered(logs - evidence[picked])
        return cls(
            designs=[each.design for each in likelihoods],
            fits=fits,
            weights=weights,
            error_odds=odds.reshape(len(errors), len(parts)).sum(axis=1),
        )

    @property
    def large_error(self) -> float:
        """The probability that the designs are far off, and not by the noise in a wide one."""
        least = max(constants.LARGE_ERROR, self.designs[0].noise_error)
        is_large = np.array(constants.DESIGN_ERRORS) >= least
        return float(self.error_odds[is_large].sum())

    @property
    def means(self) -> Floats:
        """Coefficients of each fit, shape (k, p)."""
        return np.array([each.mean for each in self.fits])

    @cached_property
    def moments(self) -> tuple[Floats, Floats]:
        """Mean, shape (p,), and covariance by noise and prior, shape (p, p)."""
        logs = np.log(np.maximum(self.weights, 1e-300))
        return averaged(logs, self.means, np.array([each.covariance for each in self.fits]))

    @cached_property
    def feature_covariance(self) -> Floats:
        """Mean covariance of the features, in spreads, shape (p - 1, p - 1)."""
        return np.asarray(np.mean([each.covariance for each in self.designs], axis=0))

    @property
    def basis(self) -> Floats:
        """A lower triangle, shape (p, p), that makes features uncorrelated with unit variances."""
        means = np.mean([each.means for each in self.designs], axis=0)
        inverse = np.linalg.inv(np.linalg.cholesky(self.feature_covariance))
        basis = np.zeros((len(inverse) + 1, len(inverse) + 1))
        basis[0, 0], basis[1:, 0], basis[1:, 1:] = 1.0, -inverse @ means, inverse
        return basis


def telling(
    first: Sequence[ScoresT], narrow: Sequence[ScoresT], squared_radius: float
) -> tuple[ScoresT, ...]:
    """Return `first`, and of `narrow` those of a wider ball, or all where none is.

    Where noise was so cheap that balls were widened, shrinking and cutting in others pull
    coefficients more than noise does.
    """
    wide = [
        each for each in narrow if constants.WIDER * squared_radius < each.squared_radius < math.inf
    ]
    return (*first, *(wide or narrow))


def pull(
    narrow: Scores, wide: Scores, mixture: Mixture, records: float, *, farthest: float, cut: float
) -> Floats:
    """Return how far shrinking and cutting may still pull coefficients, shape (p,).

    A narrow round leads so far from the mean of those that were widened, less what noise explains
    (James and Stein 1961). A part of that is left, in proportion to what shrinking of rows as far
    as the `farthest` and cutting still take: `cut` is what residuals lose by it, over what they
    lost in the narrow round. It is 0 where no round was widened: then nothing tells.
    """
    (mean, noise), design = mixture.moments, mixture.designs[0]
    if wide.squared_radius <= constants.WIDER * narrow.squared_radius:
        return np.zeros(len(mean))
    expectation = narrow.expectation(design, records, mixture.dispersion, mean)
    expected, jacobian = expectation(mean)
    inverse = np.linalg.pinv(jacobian)
    away = inverse @ (narrow.values - expected)
    covariance = noise + narrow.noise_sd**2 * inverse @ inverse.T
    by_noise = len(mean) + _SURELY * math.sqrt(2.0 * len(mean))
    distance = max(float(away @ inverted(covariance) @ away), by_noise)
    ends = 1.0 / np.sqrt([wide.squared_radius, narrow.squared_radius]) - 1.0 / farthest
    left = min(max(0.0, float(ends[0] / ends[1]), cut), 0.5)  # at most as far again
    return np.asarray(away * math.sqrt(1.0 - by_noise / distance) * left / (1.0 - left))


def far_slopes(sampling: Floats, lost: Floats, records: float) -> Floats:
    """Return the covariance of coefficients by slopes that rows far out may have, shape (p, p).

    Shrinking loses the part `lost`, shape (p,), of each feature's mean square. The slopes of what
    it loses differ from those of the rest, beforehand, as those of a sample of 1 / `FAR_SLOPES`^2
    records do, and slopes of all rows differ from what rounds tell by that part of it. `sampling`,
    shape (p, p), is the covariance by the scatter of so many `records`.
    """
    return np.asarray(constants.FAR_SLOPES**2 * records * sampling * np.outer(lost, lost))


def designs_of(size: int) -> int:
    """Return how many designs a posterior of so many coefficients is mixed of."""
    return next(many for most, many in constants.DESIGNS if size <= most)


def _tempered(logs: Floats) -> Floats:
    """Return weights, shape (k,), by log evidence, so flat that enough of them count.

    They are even if the evidence is no number.
    """
    for power in 0.8 ** np.arange(100):
        weights: Floats = softmax(power * logs)
        if 1.0 / np.sum(weights**2) >= constants.LEAST_EFFECTIVE * len(logs):
            return weights
    return np.full(len(logs), 1.0 / len(logs))


@dataclass(frozen=True)
class RecordsScatter:
    """How records scatter about a fit: `times` as much as the model expects, with a deviation.

    `covariance`, shape (p, p), is that of coefficients by it, and `unevenness`, shape (p,), by what
    part its diagonal is above that of records that all scatter alike. `cut` is the share of
    residuals that are expected to be cut.
    """

    covariance: Floats
    unevenness: Floats
    times: float
    times_sd: float
    cut: float


class TargetJob(ScoredJob[RegressionTask]):
    """Everything that follows from the sums released so far, one or more.

    Targets are in units of their family: numbers in standard deviations from their mean, classes 0
    and 1, others as they are.
    """

    @property
    def columns(self) -> Measured:
        """The predictors and the target."""
        return self.all_columns if self.task.weights is None else self.all_columns.first(-1)

    @property
    def features(self) -> tuple[Column, ...]:
        """The predictors in spreads."""
        return self.columns.features(self.task.predictors)

    @property
    def weighing(self) -> tuple[float, float]:
        """The mean weight, over the largest, and the mean weight that a unit of weight has."""
        if self.task.weights is None:
            return 1.0, 1.0
        largest = self.task.weights.upper
        centre, spread = float(self.all_columns.centres[-1]), float(self.all_columns.spreads[-1])
        mean = max(centre / largest, _LEAST_WEIGHT)
        return mean, min(max((centre**2 + spread**2) / largest**2 / mean, mean), 1.0)

    @property
    def family(self) -> TargetFamily:
        """The targets' family."""
        return FAMILIES[self.task.family]

    @property
    def is_number(self) -> bool:
        """Whether the target is a number, whose units are measured."""
        return self.task.family == "normal"

    @property
    def size(self) -> int:
        """The number of coefficients, p: the constant and one for each feature."""
        return 1 + len(self.task.features)

    @property
    def offset(self) -> float | None:
        """The offset's coefficient for one spread of the offset; None without an offset."""
        return None if self.task.offset is None else float(self.columns.spreads[-2])

    @property
    def unit(self) -> float:
        """One unit of the family's targets, in the data's."""
        if self.task.family == "logistic":
            return 2.0 * self.task.target.half_range
        return float(self.columns.spreads[-1]) if self.is_number else 1.0

    @property
    def origin(self) -> float:
        """Where the family's targets are 0, in the data's units."""
        if self.task.family == "logistic":
            return self.task.target.lower
        return float(self.columns.centres[-1]) if self.is_number else 0.0

    @property
    def limits(self) -> tuple[float, float]:
        """The target's bounds, in units of the family."""
        target = self.task.target
        return (target.lower - self.origin) / self.unit, (target.upper - self.origin) / self.unit

    @cached_property
    def level(self) -> float:
        """The target's mean."""
        return self._within_link((float(self.columns.centres[-1]) - self.origin) / self.unit)

    def _within_link(self, mean: float) -> float:
        least = constants.SMALLEST_LEVEL
        if self.task.family == "logistic":
            return min(max(mean, least), 1.0 - least)
        return mean if self.is_number else max(mean, least * self.task.target.upper)

    def _level_error(self, design: DesignRows, predictors: Floats) -> float:
        """Return how far predicted targets are from the first round's in the mean, as a predictor.

        Less what noise explains.
        """
        if self.task.weights is not None:
            return 0.0
        sd = float(self.columns.errors[-1]) * self.task.target.half_range / self.unit
        predicted = float(design.weights @ self.family.mean(predictors))
        level, away, noisy = (
            self.family.link(self._within_link(each))
            for each in (self.level, predicted, self.level + _SURELY * sd)
        )
        return max(0.0, abs(away - level) - abs(noisy - level))

    @cached_property
    def first_dispersion(self) -> float:
        """The dispersion as the first round tells it, as if means were alike."""
        if self.is_number:
            return float(np.mean(self.family.dispersions))
        if self.columns.looseness[-1] > constants.HIDDEN:
            return constants.UNKNOWN_DISPERSION
        variance = float(self.columns.spreads[-1]) ** 2
        if self.task.family != "gamma":
            variance -= self.level
        return float(np.clip(variance / self.level**2, *self.family.dispersions[[0, -1]]))

    @property
    def weighing_dispersion(self) -> float:
        """The dispersion by which a query is to weight residuals."""
        if self.task.family == "gamma":
            return min(constants.GAMMA_FLOOR * self.level, LARGEST_COORDINATE)
        return self.first_dispersion if self.task.family == "negative_binomial" else 1.0

    @property
    def weighted_records(self) -> float:
        return self.records[0] * self.weighing[0]

    # queries

    @property
    def moments_query(self) -> WeightedRowMatrix:
        """The second round's query, with the target centred at its mean and cut far from it."""
        target, centre = self.task.target, self.origin + self.level * self.unit
        farthest = max(target.upper - centre, centre - target.lower)
        reach = self.unit if self.task.family == "logistic" else constants.TARGET_REACH
        if self.task.family != "logistic":
            reach *= float(self.columns.spreads[-1])
        column = Column(
            name=target.name, centre=centre, scale=min(reach, farthest), term=target.term
        )
        radius = rules.default_squared_radius(self.task)
        return rules.moments_query(self.task, (*self.features, column), radius)

    def score_query(self) -> ScoreSum:
        """Return the query for scores where the sums so far lead to."""
        mixture = self.mixture(constants.POINT_DESIGNS)
        point, covariance = mixture.moments
        residual_sd = self._residual_sd(mixture, point, covariance)
        if self.is_number:
            point = point * self.unit
            point[0] += self.origin
            residual_sd *= self.unit
        offset = () if self.offset is None else (self.offset,)
        query = rules.score_query(
            self.task,
            self.features,
            point=(*point.tolist(), *offset),
            basis=tidy(mixture.basis),
            dispersion=self.weighing_dispersion,
            residual_cut=1.0,
            squared_radius=rules.default_squared_radius(self.task),
        )
        squared_radius, cut = self._ball_and_cut(query, residual_sd)
        return query.model_copy(
            update={"radius": math.sqrt(squared_radius) / rules.REACH, "residual_cut": cut}
        )

    def _residual_sd(self, mixture: Mixture, point: Floats, covariance: Floats) -> float:
        """Return the root mean square of weighted residuals at `point`, in the family's unit."""
        design = mixture.designs[0]
        means = self.family.mean(design.predictors(point))
        variances = self.family.variance(means, mixture.dispersion)
        if self.is_number:  # as far as the point is from the truth, by the noise
            variances += np.sum((design.rows @ covariance) * design.rows, axis=1)
        weights = self.family.weight(means, self.weighing_dispersion)
        residual_sd = math.sqrt(float(design.weights @ (weights**2 * variances)))
        if self.is_number:
            return residual_sd
        # a fit does not scatter more than the target: means far out are exponentials
        largest = float(self.family.weight(np.zeros(1), self.weighing_dispersion)[0])
        return min(residual_sd, largest * float(self.columns.spreads[-1]) / self.unit)

    def _ball_and_cut(self, query: ScoreSum, residual_sd: float) -> tuple[float, float]:
        """Return the squared radius of rows, in spreads, and where residuals are cut.

        Noise is in proportion to their product. Where it is cheap, both grow until hardly a row is
        shrunk and hardly a residual cut, so that slopes are those of all records alike. The first
        round of scores stays narrow: how far the later ones lead from it shows what shrinking and
        cutting did.
        """
        least = rules.default_squared_radius(self.task)
        is_class = self.task.family == "logistic"
        nearest = 1.0 if is_class else constants.CUTS[self.task.family] * residual_sd
        free = self.cheap_reach(query, self.weighted_records) * residual_sd
        growth = free / nearest / math.sqrt(least)
        if len(self.sums) == NARROW or growth < 1.0:
            return least, nearest
        wider = 1.0 if is_class else max(1.0, math.sqrt(growth / constants.ROWS_BEFORE_CUT))
        factor = max(1.0, min((growth / wider) ** 2, self.released.farthest**2 / least))
        if is_class:
            return factor * least, nearest
        return factor * least, nearest * min(growth / math.sqrt(factor), constants.FARTHEST_CUT)

    # what was released

    @cached_property
    def own_scores(self) -> tuple[TargetScores, ...]:
        """What tells of the target's own mean; nothing if records have weights."""
        return () if self.task.weights is not None else (self._target_scores(),)

    @cached_property
    def score_rounds(self) -> tuple[TargetScores, ...]:
        """Sums of scores: the moments' and those of later rounds."""
        return (self._moment_scores(), *map(self._scores, self.sums[2:]))

    @cached_property
    def scores(self) -> tuple[TargetScores, ...]:
        """Sums of scores that tell of coefficients."""
        least = rules.default_squared_radius(self.task)
        return telling(self.own_scores, self.score_rounds, least)

    def _target_scores(self) -> TargetScores:
        """Return what the first round tells of the target: its mean and mean square."""
        released, records = self.sums[0], self.records[0]
        query = query_of(released, ColumnMoments)
        place, half = len(self.task.predictors), self.task.target.half_range / self.unit
        middle = (self.task.target.centre - self.origin) / self.unit
        mean_sd, square_sd = in_units(query, released.noise_sd)[[0, len(query.columns)]] / records
        mean, square = in_units(query, released.values)[:-1].reshape(2, -1)[:, place] / records
        whole = half**2 * square + 2.0 * middle * half * mean + middle**2
        error = half * math.hypot(half * square_sd, 2.0 * middle * mean_sd)
        low, high = self.limits
        return TargetScores(
            family=self.family,
            values=np.array([(middle + half * mean) * records]),
            noise_sd=float(mean_sd) * half * records,
            cut=_UNCUT,
            low=low,
            high=high,
            basis=np.eye(1, self.size),
            squares=np.array([whole * records]),
            squares_sd=error * records,
        )

    def _moment_scores(self) -> TargetScores:
        released = self.sums[1]
        query = query_of(released, WeightedRowMatrix)
        column = query.regressed[-1]
        scale = rules.REACH * column.scale / (query.target_limit * self.unit)
        low, high = self.limits
        return TargetScores(
            family=self.family,
            values=matrix_from(query, released.values)[: self.size, -1] * scale,
            noise_sd=float(released.noise_sd[-2]) / query.grid**2 * scale,
            cut=column.scale / self.unit,
            low=low,
            high=high,
            basis=np.eye(self.size),
            is_of_moments=True,
            level=(column.centre - self.origin) / self.unit,
        )

    def _scores(self, released: ReleasedSum) -> TargetScores:
        query = query_of(released, ScoreSum)
        unit = self.unit if self.is_number else 1.0
        radius, cut = query.radius * rules.REACH, query.residual_cut / unit
        sums = scores_from(query, released.values.astype(np.float64))
        sds = scores_from(query, released.noise_sd)
        point = np.array(query.point)[: self.size] / rules.REACH
        if self.is_number:
            point = point / unit
            point[0] -= self.origin / unit
        low, high = self.limits
        return TargetScores(
            family=self.family,
            values=sums.scores * radius * cut,
            noise_sd=float(sds.scores[0]) * radius * cut,
            cut=cut,
            low=low,
            high=high,
            basis=triangle(query.basis),
            squared_radius=radius**2,
            point=point,
            weighing_dispersion=query.dispersion,
            squares=sums.squares * (radius * cut) ** 2,
            squares_sd=float(sds.squares[0]) * (radius * cut) ** 2,
            cut_count=sums.cut,
            cut_count_sd=sds.cut,
        )

    # inference

    @cached_property
    def prior_mean(self) -> Floats:
        """The prior's mean, shape (p,): no slopes, and the target's mean."""
        mean = np.zeros(self.size)
        mean[0] = self.family.link(self.level)
        return mean

    def prior(self, covariance: Floats, part: float) -> NormalPrior:
        """Return the prior of coefficients in spreads: slopes are N(0, (part sd)^2 C^-1).

        C is the features' covariance, so that recoding, centring or combining them changes nothing.
        """
        precision = np.zeros((self.size, self.size))
        precision[0, 0] = (1.0 if self.is_number else constants.CONSTANT_SD) ** -2.0
        precision[1:, 1:] = covariance / (part * self.task.prior_sd) ** 2
        return NormalPrior(self.prior_mean, precision)

    @cached_property
    def released(self) -> ReleasedDesign:
        """What the first two rounds tell of the rows."""
        return released_design(
            self.task.predictors,
            self.sums[0],
            self.sums[1],
            records=self.records[0],
            weighted_records=self.weighted_records,
            offset=self.offset,
        )

    def start(self, design: DesignRows) -> tuple[float, float, Floats]:
        """Return the same with the dispersion that is seen, a root mean square."""
        dispersion, sd, point = self.first_dispersion, 0.0, self.prior_mean
        prior = self.prior(design.covariance, constants.PRIOR_PARTS[2])
        dispersions = self.family.dispersions
        for error in (_ROUGHLY, NEARLY, NEARLY):
            point = self.under(design, dispersion, point).fit(prior, error).mean
            rounds = (*self.own_scores, *self.score_rounds)
            for each in rounds:
                each.tables.clear()  # they were made about other coefficients
            logs = log_dispersions(
                rounds,
                self.weighted_records,
                design,
                point,
                dispersions,
                weighing=self.weighing,
            )
            logs += self.family.log_prior(dispersions)
            logs = np.where(dispersions > self._largest_dispersion, -np.inf, logs)
            weights = softmax(logs)
            mean = float(weights @ dispersions)
            dispersion = math.sqrt(float(weights @ dispersions**2))
            sd = math.sqrt(max(dispersion**2 - mean**2, 0.0))
            step = float(np.max(dispersions[1:] / dispersions[:-1], initial=1.0))
            closer = max(step, 1.0 + _SURELY_WITHIN * sd / dispersion)
            reach = NEAR if error == _ROUGHLY else closer
            dispersions = self.family.near(dispersion, reach)
        return dispersion, sd, point

    @property
    def _largest_dispersion(self) -> float:
        """The largest plausible dispersion: infinite if noise hides the target's spread.

        Without it a mean far above the target's bound, of great dispersion and cut at the bound,
        explains counts and positive numbers, too.
        """
        if self.task.family in ("normal", "logistic"):
            return math.inf
        if self.columns.looseness[-1] > constants.HIDDEN:
            return math.inf
        least = 2.0 * float(self.family.dispersions[0])
        return max(constants.MOST_OF_DISPERSION * self.first_dispersion, least)

    def posterior(self) -> MeasuredRegressionPosterior:
        """Return the posterior: a mixture over plausible designs, with the records' own scatter."""
        mixture = self.mixture(designs_of(self.size))
        mean, noise = mixture.moments
        last, middle = self.scores[-1], mixture.designs[0]
        narrow, predictors = self.score_rounds[NARROW - 1], middle.predictors(mean)
        widest = self.prior(mixture.feature_covariance, 1.0)
        scatter = self._scatter_of(last, mixture, widest)
        lost, may_be_lost = self._lost_by(last, mixture)
        far = far_slopes(scatter.covariance, np.append(0.0, may_be_lost), self.weighted_records)
        cuts = [each.cut * max(each.cut_count, each.cut_count_sd) for each in (last, narrow)]
        pulled = pull(
            narrow,
            last,
            mixture,
            self.weighted_records,
            farthest=self.released.farthest,
            cut=cuts[0] / max(cuts[1], 1e-9),
        )
        covariance = noise + scatter.covariance + far + np.outer(pulled, pulled)
        means, factor, prior_sd = mixture.means, None, widest.sd
        if self.task.pooled is not None:
            pooled = pooled_estimate(
                self.task,
                self.columns,
                (mean, covariance),
                widest,
                shared_sds=[part * self.task.prior_sd for part in constants.PRIOR_PARTS],
                data_unit=self.unit if self.is_number else 1.0,
            )
            mean, covariance, factor = pooled.mean, pooled.covariance, pooled.factor
            means, prior_sd = mean[None], pooled.prior_sd
        transform = self.columns.to_data_units(self.unit if self.is_number else 1.0)
        transform = transform[: self.size, : self.size]
        shift = np.zeros(self.size)
        shift[0] = self.origin if self.is_number else 0.0
        shift[0] -= 0.0 if self.offset is None else float(self.columns.centres[-2])
        weights = mixture.weights if len(means) > 1 else np.ones(1)
        return MeasuredRegressionPosterior(
            family=self.task.family,
            names=("intercept", *(each.name for each in self.task.features)),
            target=self.task.target.name,
            offset=None if self.task.offset is None else self.task.offset.name,
            weights=None if self.task.weights is None else self.task.weights.name,
            coefficients=tuple((transform @ mean + shift).tolist()),
            covariance=(transform @ covariance @ transform.T).tolist(),
            components=(means @ transform.T + shift).tolist(),
            shares=tuple(weights.tolist()),
            prior_mean=tuple((transform @ self.prior_mean + shift).tolist()),
            prior_sd=tuple(np.sqrt(transform**2 @ prior_sd**2).tolist()),
            scatter=self._scatter(mixture, scatter.times),
            scatter_sd=self._scatter_sd(mixture, scatter.times_sd),
            spreads=tuple(self.columns.spreads[: self.size - 1].tolist()),
            records_per_client=self.task.records_per_client,
            records=max(1, round(self.records[0])),
            pooled=factor,
            verdict=judged_regression(
                self.task,
                RegressionEvidence(
                    columns=self.columns,
                    sums=self.sums,
                    records=self.records[0],
                    mean_weight=self.weighing[0],
                    designs=mixture.designs,
                    lost=lost,
                    slopes=mean[None, 1:],
                    noise=noise[1:, 1:],
                    covariance=covariance[1:, 1:],
                    level_error=self._level_error(middle, predictors),
                    predictors=middle.predictors(mean)[:, None],
                    moved=0.0 if self.is_number else last.moved(middle, mean),
                    prior_sd=self.task.prior_sd,
                    pulled=pulled[1:],
                    large_error=mixture.large_error,
                    unevenness=self._scatter_of(narrow, mixture, widest).unevenness[1:]
                    * self._lost_by(narrow, mixture)[0]
                    * (last.squared_radius < self.released.farthest**2),
                    cut=last.cut_count / self.records[0] - scatter.cut,
                    cut_sd=last.cut_count_sd / self.records[0],
                ),
            ),
        )

    def _lost_by(self, scores: TargetScores, mixture: Mixture) -> tuple[Floats, Floats]:
        """Return what part of features' mean squares a round loses: seen, and expected, (q,)."""
        return lost_squares(
            self.task.features, self.columns, self.released, mixture.designs, scores
        )

    def _scatter_of(
        self, scores: TargetScores, mixture: Mixture, prior: NormalPrior
    ) -> RecordsScatter:
        """Return how the records scatter about the mixture, as a round of scores has it."""
        design, mean = mixture.designs[0], mixture.moments[0]
        rows, residuals = scores.rows(design), scores.residuals(scores.asked(design))
        _, squares, cut = self.family.cut(design.predictors(mean), residuals, mixture.dispersion)
        weighted = rows * (self.weighted_records * design.weights * squares)[:, None]
        expected = self.weighing[1] * rows.T @ weighted
        assert scores.squares is not None  # noqa: S101 - a round of scores has them
        times, times_sd, own = scatter_seen(expected, scores.squares, scores.squares_sd)
        expectation = scores.expectation(design, self.weighted_records, mixture.dispersion, mean)
        jacobian = expectation(mean)[1]
        covariance = sampling_covariance(jacobian, expected * np.sqrt(np.outer(own, own)), prior)
        even = sampling_covariance(jacobian, expected * times, prior)
        return RecordsScatter(
            covariance=covariance,
            unevenness=np.diagonal(covariance) / np.diagonal(even) - 1.0,
            times=times,
            times_sd=times_sd,
            cut=float(design.weights @ cut),
        )

    def _scatter(self, mixture: Mixture, scattered: float) -> float:
        """Return what a posterior calls the records' scatter, seen over that expected."""
        dispersion = mixture.dispersion
        if self.is_number:
            return dispersion * self.unit
        if self.task.family != "poisson":
            return dispersion if self.task.family == "gamma" else scattered
        design = mixture.designs[0]
        means = self.family.mean(design.predictors(mixture.moments[0]))
        weights = design.weights * self.family.weight(means, self.weighing_dispersion) ** 2
        own, least = (self.family.variance(means, each) for each in (dispersion, 0.0))
        return scattered * float((weights @ own) / (weights @ least))

    def _scatter_sd(self, mixture: Mixture, scattered_sd: float) -> float:
        """Return the standard deviation of that by noise."""
        if self.is_number:
            return mixture.dispersion_sd * self.unit
        return mixture.dispersion_sd if self.task.family == "gamma" else scattered_sd


def tidy(basis: Floats) -> tuple[tuple[float, ...], ...]:
    """Return the rows of a lower triangle, to six digits."""
    return tuple(
        tuple(float(f"{each:.6g}") for each in row[: place + 1])
        for place, row in enumerate(basis.tolist())
    )


def triangle(basis: Sequence[Sequence[float]]) -> Floats:
    """Return the lower triangle with these rows, shape (s, s)."""
    matrix = np.zeros((len(basis), len(basis)))
    matrix[np.tril_indices(len(basis))] = [each for row in basis for each in row]
    return matrix
