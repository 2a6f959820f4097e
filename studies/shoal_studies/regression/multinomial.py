"""Multinomial regressions by the engine of the others: a predictor for each level but the first.

All levels' scores are measured, the first's too, whose own predictor is 0. So no result hangs on
which level that is.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shoal_protocol.queries import ClassScoreSum, ColumnMoments, SecondMomentMatrix
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
from shoal_studies.catalogue.regression import Verdict
from shoal_studies.regression import constants
from shoal_studies.regression.engine import (
    NARROW,
    Mixture,
    ScoredJob,
    designs_of,
    far_slopes,
    pull,
    telling,
    tidy,
    triangle,
)
from shoal_studies.regression.judging import (
    RegressionEvidence,
    among_predictors,
    beyond_bounds,
    few_complete,
    judged_slopes,
    lost_squares,
    nearly_apart,
    one_class,
)
from shoal_studies.regression.measured import Measured
from shoal_studies.regression.plausible_designs import DesignRows, ReleasedDesign, released_design
from shoal_studies.regression.scores import (
    Expectation,
    NormalPrior,
    Scores,
    sampling_covariance,
    scatter_seen,
)


@dataclass(frozen=True, kw_only=True)
class ClassScores(Scores):
    """Those of K classes: residuals are indicators of classes less their probabilities.

    Coefficients are (K - 1) p, class by class, and the first class has none. Without a point
    residuals are indicators less the `level`, shape (K,). Values are m `combinations` of the
    classes' scores, shape (m, K), one after the other, and `squares` those of each class.
    """

    level: Floats
    combinations: Floats

    def probabilities(self, design: DesignRows, point: Floats) -> Floats:
        """Return the probabilities of classes of a design's rows, shape (n, K)."""
        width = design.rows.shape[1]
        whole = np.vstack([np.zeros(width), point.reshape(-1, width)])
        return class_probabilities(design.rows @ whole.T)

    def asked(self, design: DesignRows) -> Floats:
        """Return the probabilities from which residuals are taken, shape (n, K)."""
        if self.point is None:
            return np.tile(self.level, (len(design.rows), 1))
        return self.probabilities(design, self.point)

    def expectation(
        self, design: DesignRows, records: float, dispersion: float, near: Floats
    ) -> Expectation:
        asked, turned = self.asked(design), self.rows(design)
        turned = turned * (records * design.weights)[:, None]
        count, width = len(self.combinations), design.rows.shape[1]

        def expected(point: Floats) -> tuple[Floats, Floats]:
            found = self.probabilities(design, point)
            scores = (self.combinations @ (found - asked).T) @ turned
            by_class = (found[:, 1:, None] * design.rows[:, None, :]).reshape(len(turned), -1)
            shared = (found @ self.combinations.T)[:, :, None] * turned[:, None, :]
            of_each = (turned.T @ by_class).reshape(1, -1, len(self.level) - 1, width)
            jacobian = of_each * self.combinations[:, None, 1:, None]
            jacobian = jacobian.reshape(count * turned.shape[1], -1)
            return scores.ravel(), jacobian - shared.reshape(len(turned), -1).T @ by_class

        return expected

    def scatter(self, design: DesignRows, records: float, point: Floats) -> Floats:
        """Return the covariance of all classes' scores, shape (K s, K s), at coefficients."""
        found, rows = self.probabilities(design, point), self.rows(design)
        away = found - self.asked(design)
        products = away[:, :, None] * away[:, None, :] - found[:, :, None] * found[:, None, :]
        products[:, range(found.shape[1]), range(found.shape[1])] += found
        weighted = products * (records * design.weights)[:, None, None]
        size = found.shape[1] * rows.shape[1]
        blocks = np.einsum("skl,si,sj->kilj", weighted, rows, rows, optimize=True)
        return np.asarray(blocks.reshape(size, size))


def combinations_without(direction: Floats) -> Floats:
    """Return orthonormal combinations, shape (K - 1, K), to which a `direction` adds nothing."""
    turn, _ = np.linalg.qr(np.column_stack([direction, np.eye(len(direction))]))
    return np.asarray(turn[:, 1:].T)


class ClassJob(ScoredJob[MultinomialRegressionTask]):
    """Everything that follows from the sums released so far, one or more."""

    @property
    def columns(self) -> Measured:
        """The features, and the first level's indicator."""
        return self.all_columns.first(self.width)

    @property
    def width(self) -> int:
        """p, the number of a level's coefficients: the constant and one for each feature."""
        return 1 + len(self.task.features)

    @cached_property
    def shares(self) -> Floats:
        """Shares of the classes, shape (K,), none of them 0."""
        shares = np.maximum(self.all_columns.centres[self.width - 1 :], constants.SMALLEST_LEVEL)
        return np.asarray(shares / shares.sum())

    @property
    def moments_query(self) -> SecondMomentMatrix:
        return self.task.moments_query(self.features)

    def score_query(self) -> ClassScoreSum:
        """Return the query for scores where the sums so far lead to."""
        mixture = self.mixture(constants.POINT_DESIGNS)
        point, _ = mixture.moments
        query = self.task.score_query(
            self.features,
            point=np.append(np.zeros(self.width), point).tolist(),
            basis=tidy(mixture.basis),
            squared_radius=self.task.squared_radius,
        )
        design = mixture.designs[0]
        found = self.scores[0].probabilities(design, point)
        variance = float(np.mean(design.weights @ (found * (1.0 - found))))
        reach = self.cheap_reach(query, self.records[0]) * math.sqrt(variance / 2.0)
        least = math.sqrt(self.task.squared_radius)
        radius = (
            max(least, min(reach, self.released.farthest)) if len(self.sums) > NARROW else least
        )
        return query.model_copy(update={"radius": radius / rules.REACH})

    @cached_property
    def scores(self) -> tuple[ClassScores, ...]:
        """Sums of scores as in other regressions: first how many records each class has."""
        later = map(self._scores, self.sums[2:])
        narrow = (self._moment_scores(), *later)
        return telling((self._counted(),), narrow, self.task.squared_radius)

    def _counted(self) -> ClassScores:
        released, first = self.sums[0], self.width - 1
        query = query_of(released, ColumnMoments)
        places = slice(first, len(query.columns))
        return ClassScores(
            values=(self.records[0] + in_units(query, released.values)[places]) / 2.0,
            noise_sd=float(in_units(query, released.noise_sd)[first]) / 2.0,
            basis=np.eye(1, self.width),
            level=np.zeros(len(self.shares)),
            combinations=np.eye(len(self.shares)),
        )

    def _moment_scores(self) -> ClassScores:
        released, part = self.sums[1], self.task.class_part
        query = query_of(released, SecondMomentMatrix)
        combinations = combinations_without(self.shares)  # which rid scores of the residuals' level
        seen = matrix_from(query, released.values)[self.width :, : self.width]
        unit = rules.REACH**2 / part
        return ClassScores(
            values=(combinations @ seen).ravel() * unit,
            noise_sd=float(released.noise_sd[-2]) / query.grid**2 * unit,
            basis=np.eye(self.width),
            is_of_moments=True,
            level=self.shares,
            combinations=combinations,
        )

    def _scores(self, released: ReleasedSum) -> ClassScores:
        query = query_of(released, ClassScoreSum)
        combinations = combinations_without(np.ones(query.classes))  # scores of all add up to 0
        radius = query.radius * rules.REACH
        unit = math.sqrt(2.0) * radius
        seen, sds = (
            in_units(query, each)[:-1].reshape(2, query.classes, -1)
            for each in (released.values, released.noise_sd)
        )
        point = np.array(query.point).reshape(query.classes, -1) / rules.REACH
        return ClassScores(
            values=(combinations @ seen[0]).ravel() * unit,
            noise_sd=float(sds[0, 0, 0]) * unit,
            basis=triangle(query.basis),
            squared_radius=radius**2,
            point=(point[1:] - point[0]).ravel(),
            squares=seen[1].ravel() * unit**2,
            squares_sd=float(sds[1, 0, 0]) * unit**2,
            level=self.shares,
            combinations=combinations,
        )

    @cached_property
    def prior_mean(self) -> Floats:
        """The prior's mean, shape ((K - 1) p,): no slopes, and the classes' shares."""
        mean = np.zeros((len(self.shares) - 1, self.width))
        mean[:, 0] = np.log(self.shares[1:] / self.shares[0])
        return mean.ravel()

    def prior(self, covariance: Floats, part: float) -> NormalPrior:
        """Return the prior of coefficients in spreads, as that of other regressions by class."""
        precision = np.zeros((self.width, self.width))
        precision[0, 0] = constants.CONSTANT_SD**-2.0
        precision[1:, 1:] = covariance / (part * self.task.prior_sd) ** 2
        among = among_predictors(len(self.shares) - 1)
        return NormalPrior(self.prior_mean, np.asarray(np.kron(among, precision), np.float64))

    @cached_property
    def released(self) -> ReleasedDesign:
        """What the first two rounds tell of the rows."""
        return released_design(
            self.task.features,
            self.sums[0],
            self.sums[1],
            records=self.records[0],
            aside=self.task.class_part**2,
        )

    def posterior(self) -> MultinomialRegressionPosterior:
        """Return the posterior: a mixture over plausible designs, with the records' own scatter."""
        mixture = self.mixture(designs_of(len(self.prior_mean)))
        mean, noise = mixture.moments
        last, middle = self.scores[-1], mixture.designs[0]
        expected = last.scatter(middle, self.records[0], mean)
        assert last.squares is not None  # noqa: S101 - a round of scores has them
        scattered, scattered_sd, own = scatter_seen(expected, last.squares, last.squares_sd)
        combined = np.kron(last.combinations, np.eye(self.width))
        meat = combined @ (expected * np.sqrt(np.outer(own, own))) @ combined.T
        _, jacobian = last.expectation(middle, self.records[0], 1.0, mean)(mean)
        widest = self.prior(mixture.feature_covariance, 1.0)
        sampling = sampling_covariance(jacobian, meat, widest)
        narrow, records = self._scores(self.sums[NARROW]), self.records[0]
        pulled = pull(narrow, last, mixture, records, farthest=self.released.farthest, cut=0.0)
        lost, may_be_lost = lost_squares(
            self.task.features, self.columns, self.released, mixture.designs, last
        )
        parts = np.tile(np.append(0.0, may_be_lost), len(self.shares) - 1)
        far = far_slopes(sampling, parts, records)
        covariance = noise + sampling + far + np.outer(pulled, pulled)
        transform = np.kron(np.eye(len(self.shares) - 1), self.columns.to_data_units())
        levels = tuple(each.name for each in self.task.levels)
        features = tuple(each.name for each in self.task.features)
        return MultinomialRegressionPosterior(
            names=coefficient_names(levels, features),
            levels=levels,
            features=features,
            target=self.task.target,
            coefficients=tuple((transform @ mean).tolist()),
            covariance=(transform @ covariance @ transform.T).tolist(),
            components=(mixture.means @ transform.T).tolist(),
            shares=tuple(mixture.weights.tolist()),
            prior_mean=tuple((transform @ self.prior_mean).tolist()),
            prior_sd=tuple(np.sqrt(transform**2 @ widest.sd**2).tolist()),
            scatter=scattered,
            scatter_sd=scattered_sd,
            spreads=tuple(self.columns.spreads[:-1].tolist()),
            records_per_client=self.task.records_per_client,
            records=max(1, round(self.records[0])),
            verdict=self._verdict(mixture, covariance, pulled, lost),
        )

    def _verdict(
        self, mixture: Mixture, covariance: Floats, pulled: Floats, lost: Floats
    ) -> Verdict:
        at_bounds = self.all_columns.one_bound[self.width - 1 :].tolist()
        levels = [each.name for each in self.task.levels]
        empty = [name for name, bound in zip(levels, at_bounds, strict=True) if bound < 0.0]
        if empty:
            return one_class(
                f"hardly any record is of the level {', '.join(empty)}: are levels spelt, or coded,"
                " as the records have them?"
            )
        mean, noise = mixture.moments
        last, middle = self.scores[-1], mixture.designs[0]
        names = [each.name for each in self.task.features]
        slopes = np.arange(len(mean)) % self.width > 0
        seen = RegressionEvidence(
            columns=self.columns,
            sums=self.sums,
            records=self.records[0],
            designs=mixture.designs,
            lost=lost,
            slopes=mean.reshape(-1, self.width)[:, 1:],
            noise=noise[np.ix_(slopes, slopes)],
            covariance=covariance[np.ix_(slopes, slopes)],
            predictors=last.changes(middle, mean),
            moved=last.moved(middle, mean),
            prior_sd=self.task.prior_sd,
            pulled=pulled[slopes],
            large_error=mixture.large_error,
        )
        reasons = few_complete(seen.complete) or beyond_bounds(self.task.features, self.columns)
        reasons += nearly_apart(seen.predictors)
        named = [f"{level}: {name}" for level in levels[1:] for name in names]
        return judged_slopes(self.task.features, named, reasons, seen)
