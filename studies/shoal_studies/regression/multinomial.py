"""Multinomial regressions from scores at three points, in units that the first round measured.

As `generalised`, with a predictor for each level but the reference, whose own is 0. All levels'
scores are measured, the reference's too, so that no result hangs on which one that is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shoal_protocol.queries import ClassScoreSum, SecondMomentMatrix
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.scores import class_probabilities
from shoal_protocol.queries.sums import in_units, matrix_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue import regression as rules
from shoal_studies.catalogue.measurements import query_of
from shoal_studies.catalogue.multinomial_regression import (
    MultinomialRegressionPosterior,
    MultinomialRegressionTask,
    coefficient_names,
)
from shoal_studies.catalogue.study import require_due
from shoal_studies.contract import RequestedRound
from shoal_studies.regression.constants import CONSTANT_SD, SHARES, SMALLEST_LEVEL
from shoal_studies.regression.design_sample import (
    levels_of,
    part_pulled,
    pulled,
    sample_of_moments,
    scatter_seen,
)
from shoal_studies.regression.judging import judged_classes
from shoal_studies.regression.measured import JobSums, Measured
from shoal_studies.regression.score_likelihood import (
    Measurement,
    ScoreModel,
    best_estimate,
    estimate,
)

_PULL: Final = 0.1  # of a slope, by rows far out, which count less, and by what curves


@dataclass(frozen=True, kw_only=True)
class ClassModel(ScoreModel):
    """Of one of K classes: coefficients (K - 1) p, the first class's are 0; scores K p.

    `shares`, shape (K,), are those of the classes.
    """

    shares: Floats

    def predictors(self, point: Floats) -> Floats:
        """Return the predictors of the sample's rows, shape (s, K), at coefficients `point`."""
        slopes = point.reshape(len(self.shares) - 1, -1)
        found: Floats = self.sample.rows @ slopes.T
        return np.hstack([np.zeros((len(found), 1)), found])

    def probabilities(self, point: Floats) -> Floats:
        """Return the probabilities of classes, shape (s, K), at coefficients `point`."""
        return class_probabilities(self.predictors(point))

    def precision(self, shared_sd: float | None = None) -> Floats:
        """Return the prior's precision matrix, by `own_sds`.

        It is as if each class's coefficients, the first's too, were alike and independent before
        the first's are taken off them all. So the prior is the same whichever class is first.
        """
        classes = len(self.shares)
        among = 2.0 * (np.eye(classes - 1) - 1.0 / classes)
        return np.asarray(np.kron(among, np.diag(self.own_sds(shared_sd) ** -2.0)), np.float64)

    def expected(self, point: Floats) -> list[tuple[Floats, Floats]]:
        sample, found, size = self.sample, self.probabilities(point), len(point)
        rows = sample.rows * sample.sizes[:, None]
        away = apart_from(self.shares)
        weighted = ((found - self.shares) * sample.moment_weights[:, None]).T @ rows
        moved = self.curvature(found, sample.moment_weights).reshape(len(away), -1, size)
        first = (away @ weighted).ravel(), np.tensordot(away, moved, 1).reshape(-1, size)
        jacobian = self.curvature(found, sample.weights)
        return [first, *((self._scores(found, each), jacobian) for each in self.measurements[1:])]

    def _scores(self, found: Floats, each: Measurement) -> Floats:
        """Return the scores expected at a measurement's point, shape (K p,)."""
        there = self.probabilities(self.centre if each.point is None else each.point)
        rows = self.sample.rows * self.sample.sizes[:, None]
        scores: Floats = ((found - there) * self.sample.weights[:, None]).T @ rows
        return scores.ravel()

    def curvature(self, probabilities: Floats, weights: Floats) -> Floats:
        """Return how fast scores change with coefficients, shape (K p, (K - 1) p)."""
        rows, sizes = self.sample.rows, self.sample.sizes
        width, classes = rows.shape[1], len(self.shares)
        each = (probabilities[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)
        found = -(each * (weights * sizes)[:, None]).T @ each
        for place in range(classes):
            block = slice(place * width, (place + 1) * width)
            found[block, block] += self.sample.gram(weights * probabilities[:, place])
        return found[:, width:]

    def scatter(self, point: Floats, *, at: Floats) -> Floats:
        """Return the scatter of scores at `at` if coefficients are `point`, shape (K p, K p)."""
        found, there = self.probabilities(point), self.probabilities(at)
        rows, weights = self.sample.rows, self.sample.weights**2 * self.sample.sizes
        away = found - there
        products = away[:, :, None] * away[:, None, :] - found[:, :, None] * found[:, None, :]
        products[:, range(found.shape[1]), range(found.shape[1])] += found
        blocks = np.einsum("skl,si,sj->kilj", products * weights[:, None, None], rows, rows)
        size = found.shape[1] * rows.shape[1]
        return np.asarray(blocks.reshape(size, size))


def apart_from(shares: Floats) -> Floats:
    """Return the projection, shape (K, K), of what is in proportion to `shares` to nothing.

    In the round of moments that is what all classes have of the features' sum, whatever that is.
    """
    return np.eye(len(shares)) - np.outer(shares, shares) / (shares @ shares)


@dataclass(frozen=True)
class MultinomialRegression:
    """The learner of one `MultinomialRegressionTask`."""

    task: MultinomialRegressionTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | MultinomialRegressionPosterior:
        """Return the next round, or the posterior when `sums` suffice.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        require_due(self.task, population, sums)
        if not sums:
            return RequestedRound(query=rules.first_query(self.task), share=SHARES[0])
        job = _JobSums(self.task, sums)
        features = job.found.features(self.task.features)
        if len(sums) == 1:
            return RequestedRound(query=self.task.moments_query(features), share=SHARES[1])
        model = job.model()
        if len(sums) == self.task.rounds:
            return job.posterior(model)
        point = np.append(np.zeros(len(features) + 1), best_estimate(model)[0])
        query = self.task.score_query(features, point=tuple(point.tolist()))
        return RequestedRound(query=query, share=SHARES[len(sums)])


class _JobSums(JobSums[MultinomialRegressionTask]):
    """Everything that follows from the sums released so far, one or more."""

    @property
    def found(self) -> Measured:
        """The features, and the reference's indicator, as the first round alone tells."""
        return self.all_columns.first(len(self.task.features) + 1)

    @property
    def shares(self) -> Floats:
        """Shares of the classes, shape (K,), none of them 0."""
        shares = np.maximum(self.all_columns.centres[len(self.task.features) :], SMALLEST_LEVEL)
        return np.asarray(shares / shares.sum())

    def model(self) -> ClassModel:
        """Return what the second round and those of scores since then measured."""
        released, width = self.sums[1], len(self.task.features) + 1
        query = query_of(released, SecondMomentMatrix)
        matrix = matrix_from(query, released.values) * rules.REACH**2
        product_sd = float(released.noise_sd[-2]) / query.grid**2 * rules.REACH**2
        found, part = self.found, self.task.class_part
        sample, far = sample_of_moments(
            matrix[1:width, 1:width],
            product_sd,
            shares=found.shares[:-1],
            looseness=found.looseness[:-1],
            squared_radius=self.task.squared_radius,
            records=self.records[0],
            aside=part**2,
            levels=levels_of(self.task.features),
        )
        scores = apart_from(self.shares) @ matrix[width:, :width] / part
        centre = np.zeros((len(self.shares) - 1, width))
        centre[:, 0] = np.log(self.shares[1:] / self.shares[0])
        first = Measurement(scores.ravel(), product_sd / part)
        return ClassModel(
            sample=sample,
            measurements=(first, *map(self._measurement, self.sums[2:])),
            centre=centre.ravel(),
            prior_sd=self.task.prior_sd,
            constant_sd=CONSTANT_SD,
            looseness=found.looseness[:-1],
            far=far,
            shares=self.shares,
        )

    def _measurement(self, released: ReleasedSum) -> Measurement:
        point, seen, sds = self._scores(released)
        return Measurement(seen[0].ravel(), float(sds[0, 0, 0]), point)

    def _scores(self, released: ReleasedSum) -> tuple[Floats, Floats, Floats]:
        """Return a round's point, its sums, and their noise, in spreads."""
        query = query_of(released, ClassScoreSum)
        unit = (2.0 * self.task.squared_radius) ** 0.5
        units = np.array([unit, unit**2])[:, None, None]
        seen, sds = (
            in_units(query, each)[:-1].reshape(2, query.classes, -1) * units
            for each in (released.values, released.noise_sd)
        )
        point, width = np.array(query.point) / rules.REACH, len(self.task.features) + 1
        return point[width:] - np.tile(point[:width], len(self.shares) - 1), seen, sds

    @property
    def _empty(self) -> list[str]:
        """The levels that hardly any record has."""
        of_levels = self.all_columns.one_bound[len(self.task.features) :].tolist()
        return [each.name for each, at in zip(self.task.levels, of_levels, strict=True) if at < 0.0]

    def posterior(self, model: ClassModel) -> MultinomialRegressionPosterior:
        """Return the estimate with noise, prior, and the records' own scatter in its covariance."""
        estimated, width = estimate(model), len(self.task.features) + 1
        at, seen, sds = self._scores(self.sums[-1])
        expected = model.scatter(estimated.mean, at=at)
        pooled, pooled_sd, own = scatter_seen(expected, seen[1].ravel(), float(sds[1, 0, 0]))
        within = (expected * np.outer(own, own) ** 0.5)[width:, width:]
        probabilities = model.probabilities(estimated.mean)
        inverse = np.linalg.inv(model.curvature(probabilities, model.sample.weights)[width:])
        through = estimated.influence @ inverse
        predictors = model.predictors(estimated.mean)[:, 1:]
        slopes = estimated.mean.reshape(-1, width)[:, 1:]
        pull = [
            np.append(
                0.0, pulled(model.sample, model.far, part_pulled(_PULL, float(each.std())), own)
            )
            for each, own in zip(predictors.T, slopes, strict=True)
        ]
        covariance = (
            estimated.covariance + through @ within @ through.T + np.diag(np.concatenate(pull) ** 2)
        )
        transform = np.kron(np.eye(len(self.shares) - 1), self.found.to_data_units())
        prior_sds = np.tile(model.own_sds(), len(self.shares) - 1)
        levels = tuple(each.name for each in self.task.levels)
        features = tuple(each.name for each in self.task.features)
        names = coefficient_names(levels, features)
        return MultinomialRegressionPosterior(
            names=names,
            levels=levels,
            features=features,
            target=self.task.target,
            coefficients=tuple((transform @ estimated.mean).tolist()),
            covariance=(transform @ covariance @ transform.T).tolist(),
            prior_mean=tuple(model.centre.tolist()),
            prior_sd=tuple(np.sqrt(transform**2 @ prior_sds**2).tolist()),
            scatter=pooled,
            scatter_sd=pooled_sd,
            spreads=tuple(self.found.spreads[:-1].tolist()),
            records=max(1, round(self.records[0])),
            verdict=judged_classes(
                names,
                self.task.features,
                self.found,
                model,
                predictors=model.predictors(estimated.mean),
                asked=model.predictors(at),
                covariance=covariance,
                expected=estimated.expected,
                complete=(self.records[0], self.sums[-1].cohort_size),
                empty=self._empty,
            ),
        )
