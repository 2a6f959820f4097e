"""Multinomial logistic regression in five rounds of everybody, in units that are measured."""

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from scipy.special import ndtri

from shoal_protocol.jobs.job_request import Range, RoundTerms
from shoal_protocol.queries import ClassScoreSum, Column, SecondMomentMatrix
from shoal_protocol.queries.columns import ColumnBounds, ColumnName, Level, Term
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.moments import TARGET_PART
from shoal_protocol.queries.scores import class_probabilities
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Real
from shoal_studies.catalogue.regression import (
    CONSTANT,
    LONG,
    REACH,
    SCORE_ROUNDS,
    WIDEST_BALL,
    MeasuredCoefficients,
    first_query,
    measured_terms,
    parts,
    within_reach,
)
from shoal_studies.catalogue.study import FixedStudy, require_features, round_terms
from shoal_studies.posteriors.base import (
    BasePosterior,
    evenly_spread,
    require_level,
    rows_of,
    square_root,
)

_DRAWS: Final = 1_000
_MOST_COEFFICIENTS: Final = 256  # of 1,000 a round would take a trainer minutes and a gigabyte


def coefficient_names(levels: tuple[str, ...], features: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of coefficients: of each level but the first, the constant's comes first."""
    return tuple(f"{level}: {each}" for level in levels[1:] for each in ("intercept", *features))


def indicator_names(target: str, levels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns that say of each level whether a record has it."""
    return tuple(f"{target}[{level}]" for level in levels)


class MultinomialRegressionPosterior(MeasuredCoefficients):
    """Posterior of K - 1 linear predictors, in the data's own units.

    The logarithm of a level's probability over that of the first of `levels`, the reference, is
    linear in the `features`: `names` are "level: intercept" and "level: feature", level by level.
    `scatter` is how many times as much as multinomial targets these do, in variance.
    """

    name: Literal["multinomial_regression"] = "multinomial_regression"
    levels: Annotated[tuple[str, ...], Field(min_length=2)]
    features: Annotated[tuple[str, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_of_its_levels(self) -> Self:
        if self.names != coefficient_names(self.levels, self.features):
            raise ValueError("names must be each level's intercept and then the features")
        return self

    @property
    def title(self) -> str:
        """What it is a posterior of, in words."""
        return f"Multinomial regression of {self.target} (reference: {self.levels[0]})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that rounds ask: the features, then the levels' indicators."""
        return (*self.features, *indicator_names(self.target, self.levels))

    @property
    def units(self) -> Floats:
        return np.tile([1.0, *self.spreads], len(self.levels) - 1)

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of each level's probability, shapes (n, K).

        `rows` have shape (n, m). They are averages over 1,000 points, the same at each call.

        Raises:
            ValueError: `rows` does not have one column per feature.
        """
        drawn = self._drawn(rows)
        return drawn.mean(axis=0), drawn.std(axis=0)

    def predict_interval(self, rows: Floats, level: float) -> Floats:
        """Return intervals that hold `level` of each level's probability, shape (n, K, 2).

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """
        require_level(level)
        ends = np.quantile(self._drawn(rows), [0.5 - level / 2.0, 0.5 + level / 2.0], axis=0)
        return np.moveaxis(ends, 0, -1)

    def _drawn(self, rows: Floats) -> Floats:
        """Return draws of the levels' probabilities, shape (draws, n, K)."""
        rows = rows_of(rows, self.features)
        design = np.column_stack([np.ones(len(rows)), rows])
        others, width = len(self.levels) - 1, design.shape[1]
        points = evenly_spread(_DRAWS, others + 1)
        means = np.array(self.components or [self.coefficients]).reshape(-1, others, width)
        picked = np.searchsorted(np.cumsum(self.shares[:-1]), points[:, -1])
        between = self._within.reshape(others, width, others, width)
        roots = square_root(np.einsum("ni,kilj,nj->nkl", design, between, design))
        predictors = np.einsum("dki,ni->dnk", means[picked], design)
        predictors += np.einsum("nkl,dl->dnk", roots, ndtri(points[:, :-1]))
        return class_probabilities(np.pad(predictors, ((0, 0), (0, 0), (1, 0))))


class TargetLevel(Model):
    """A level of the target: its `name`, and the `value` that records of it hold, its place."""

    name: ColumnName
    value: Real


class MultinomialRegressionTask(FixedStudy):
    """Bayesian multinomial logistic regression of `target`, one of `levels`, on `features`.

    The first level is the reference. No result but its names hangs on which one that is.

    A first round measures centres and spreads of the features, and later ones take rows in these
    units, weighted by their features alone. The second releases moments of rows with an indicator
    of each level; as each record has one of them, rows are shrunk by their features alone. Three
    rounds ask each class's scores, each where those before lead to. A record of no level counts as
    one of which none is true: that must not be.

    `prior_sd` is the prior standard deviation of each coefficient, for a change of the feature by
    one of its standard deviations.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (MultinomialRegressionPosterior,)
    example: ClassVar[str] = """\
[task]
name = "multinomial_regression"
target = "stage"
levels = [                     # the reference first; values as records hold them
    {name = "I", value = 1},
    {name = "II", value = 2},
    {name = "III", value = 3},
    {name = "IV", value = 4},
]

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]

"""

    name: Literal["multinomial_regression"] = "multinomial_regression"
    features: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=250)]
    target: ColumnName
    levels: Annotated[tuple[TargetLevel, ...], Field(min_length=2, max_length=64)]
    prior_sd: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 2.5

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for what in ("name", "value"):
            if len({getattr(each, what) for each in self.levels}) != len(self.levels):
                raise ValueError(f"two levels have the same {what}")
        require_features(self.columns, self.target)
        if (len(self.levels) - 1) * (len(self.features) + 1) > _MOST_COEFFICIENTS:
            raise ValueError(
                f"there are more than {_MOST_COEFFICIENTS} coefficients, one for each level but "
                "the first and each feature or constant: leave features out, or join levels"
            )
        return self

    @property
    def classes(self) -> tuple[ColumnBounds, ...]:
        """An indicator of each level."""
        names = indicator_names(self.target, tuple(each.name for each in self.levels))
        among = tuple(each.value for each in self.levels)
        terms = (
            Term(factors=(Level(variable=self.target, value=value, among=among),))
            for value in among
        )
        return tuple(map(ColumnBounds.of_term, names, terms))

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The features in order, then the indicators of the target's levels."""
        return (*self.features, *self.classes)

    @property
    def squared_radius(self) -> float:
        """Squared norm of constant and features from which rows are shrunk, in spreads."""
        return 1.0 + LONG * len(self.features)

    @property
    def class_part(self) -> float:
        """Length of a row's part that says of which class it is, in spreads."""
        return TARGET_PART * math.sqrt(self.squared_radius)

    def moments_query(self, features: Sequence[Column]) -> SecondMomentMatrix:
        """Return the query for moments of rows; each is `class_part` long in its class's column."""
        classes = (
            Column(name=each.name, centre=0.0, scale=REACH / self.class_part, term=each.term)
            for each in self.classes
        )
        radius = math.hypot(math.sqrt(self.squared_radius), self.class_part) / REACH
        return SecondMomentMatrix(
            **parts(self, (*features, *classes), intercept=CONSTANT), radius=radius
        )

    def score_query(
        self,
        features: Sequence[Column],
        *,
        point: Sequence[float],
        basis: tuple[tuple[float, ...], ...],
        squared_radius: float,
    ) -> ClassScoreSum:
        """Return the query for scores at `point`, of each level in turn, in spreads.

        They are of the constant and the features times `basis`, a lower triangle, in a ball whose
        `squared_radius` is in its units.
        """
        return ClassScoreSum(
            **parts(
                self,
                (*features, *(each.column() for each in self.classes)),
                intercept=CONSTANT,
            ),
            radius=math.sqrt(squared_radius) / REACH,
            classes=len(self.levels),
            basis=basis,
            point=within_reach(point),
        )

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        as_stated = [each.column() for each in self.features]
        zero = (0.0,) * (len(self.levels) * (len(self.features) + 1))
        scores = self.score_query(
            as_stated, point=zero, basis=(), squared_radius=self.squared_radius
        )
        around = Range(least=scores.radius, most=math.sqrt(WIDEST_BALL) * scores.radius)
        return (
            round_terms(first_query(self)),
            measured_terms(self.moments_query(as_stated)),
            measured_terms(scores, rounds=SCORE_ROUNDS, radius=around),
        )
