"""The posterior of a multinomial regression: normal, in the data's units."""

from statistics import NormalDist
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import FloatMatrix, FloatVector
from shoal_protocol.posteriors.intervals import require_level
from shoal_protocol.posteriors.rows import rows_of
from shoal_protocol.queries.class_scores import class_probabilities
from shoal_protocol.studies.regression.posterior import MeasuredCoefficients

_DRAWS: Final = 1_000
_STEPS: Final = 60  # until their root is exact


def coefficient_names(levels: tuple[str, ...], features: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of coefficients: of each level but the first, the constant's comes first."""
    return tuple(f"{level}: {each}" for level in levels[1:] for each in ("intercept", *features))


def indicator_names(target: str, levels: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns that say of each level whether a record has it."""
    return tuple(f"{target}[{level}]" for level in levels)


class MultinomialRegressionPosterior(MeasuredCoefficients):
    """Gaussian posterior of K - 1 linear predictors, in the data's own units.

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
    def units_drawn(self) -> FloatVector:
        return np.tile([1.0, *self.spreads], len(self.levels) - 1)

    def predict(self, rows: FloatMatrix) -> tuple[FloatMatrix, FloatMatrix]:
        """Return mean and standard deviation of each level's probability, shapes (n, K).

        `rows` have shape (n, m). They are averages over 1,000 points, the same at each call.

        Raises:
            ValueError: `rows` does not have one column per feature.
        """
        drawn = self._drawn(rows)
        return drawn.mean(axis=0), drawn.std(axis=0)

    def predict_interval(self, rows: FloatMatrix, level: float) -> FloatMatrix:
        """Return intervals that hold `level` of each level's probability, shape (n, K, 2).

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """
        require_level(level)
        ends = np.quantile(self._drawn(rows), [0.5 - level / 2.0, 0.5 + level / 2.0], axis=0)
        return np.moveaxis(ends, 0, -1)

    def _drawn(self, rows: FloatMatrix) -> FloatMatrix:
        """Return draws of the levels' probabilities, shape (draws, n, K)."""
        rows = rows_of(rows, self.features)
        design = np.column_stack([np.ones(len(rows)), rows])
        others, width = len(self.levels) - 1, design.shape[1]
        means = design @ np.array(self.coefficients).reshape(others, width).T
        between = np.array(self.covariance).reshape(others, width, others, width)
        covariances = np.einsum("ni,kilj,nj->nkl", design, between, design)
        roots = np.linalg.cholesky(covariances)
        predictors = means + np.einsum("nkl,dl->dnk", roots, _normals(others))
        return class_probabilities(np.pad(predictors, ((0, 0), (0, 0), (1, 0))))


def _normals(size: int) -> FloatMatrix:
    """Return points, shape (draws, size), that fill the normal distribution evenly.

    Multiples of the powers of x, where x^(size + 1) = x + 1, are spread evenly over the unit cube
    (Roberts 2018); quantiles of the normal distribution are taken of them.
    """
    base = 2.0
    for _ in range(_STEPS):
        base = (1.0 + base) ** (1.0 / (size + 1))
    places = 0.5 + np.outer(np.arange(1, _DRAWS + 1), base ** -np.arange(1.0, size + 1.0))
    found = np.vectorize(NormalDist().inv_cdf)(places % 1.0)
    return np.asarray(found, np.float64)
