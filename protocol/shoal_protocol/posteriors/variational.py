"""Posteriors of variational inference: independent normals in unconstrained space, and what they
say in the data's units. They know neither gradients nor noise, and say too little of either.
"""

from collections.abc import Mapping
from statistics import NormalDist
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.models.regressions import probability, rate
from shoal_protocol.posteriors.base import BasePosterior, Finite, FloatMatrix, FloatVector
from shoal_protocol.posteriors.showing import ShownPredictions
from shoal_protocol.queries import Column

_Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]

CAUTION = (
    "a mean-field approximation, fitted to clipped and noisy gradients: intervals are too narrow, "
    "and clipping or too few rounds pull the values themselves: simulate the job to see how far"
)


class VariationalPosterior(BasePosterior):
    """Independent normals of d unconstrained numbers: `location` and `scale`, shapes (d,).

    TOO NARROW: correlations are left out, and so is what the privacy noise in the gradients did to
    the location. Use it for predictions, and a posterior that knows about the noise where
    intervals must hold. `records` is how many went into it at most: one for each client that
    joined, or as many as a client may have.
    """

    caution: ClassVar[str] = CAUTION

    location: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=10_000)]
    scale: tuple[_Positive, ...]

    @model_validator(mode="after")
    def _one_scale_for_each(self) -> Self:
        if len(self.scale) != len(self.location):
            raise ValueError("location and scale must have the same length")
        return self

    def __repr__(self) -> str:
        numbers, kind = len(self.location), type(self).__name__
        return f"<{kind} of {numbers} numbers from {self.records} records: {self.caution}>"

    def __str__(self) -> str:
        return repr(self)

    def _facts(self) -> Mapping[str, str | int | float]:
        return {**super()._facts(), "caution": self.caution}


class _RegressionPosterior(ShownPredictions, VariationalPosterior):
    """Coefficients of a linear predictor, in the data's own units.

    `names` are "intercept", then the features.

    In normalised units u_j = (x_j - centre_j) / scale_j the predictor is `intercept` b_0 +
    sum b_j u_j, with b_j normal: that is what `location` and `scale` are of. Without a constant
    term `intercept` is 0 and there is no b_0.
    """

    variable = "coefficients"
    dimension = "coefficient"

    target: str
    feature_columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _one_for_each_coefficient(self) -> Self:
        if len(self.location) != len(self.feature_columns) + (self.intercept > 0.0):
            raise ValueError("location must have one number for each coefficient")
        if self.names != ("intercept", *self.features):
            raise ValueError("names must be the intercept and the features, in order")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns that `predict` expects, in order."""
        return tuple(column.name for column in self.feature_columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record: the features, then the target."""
        return (*self.features, self.target)

    @property
    def mean(self) -> FloatVector:
        """Posterior mean of the coefficients, shape (k,), in the order of `names`."""
        mean: FloatVector = self._to_data_units @ np.array(self.location)
        return mean

    @property
    def covariance_matrix(self) -> FloatMatrix:
        """Posterior covariance of the coefficients, shape (k, k)."""
        root = self._to_data_units * np.array(self.scale)
        covariance: FloatMatrix = root @ root.T
        return covariance

    @property
    def sd(self) -> FloatVector:
        """Posterior standard deviation of each coefficient, shape (k,); too small."""
        return np.sqrt(np.diagonal(self.covariance_matrix))

    def interval(self, level: float) -> FloatMatrix:
        """Return intervals that would hold `level` of each margin, shape (k, 2); too narrow.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        reach = quantile_of(level) * self.sd
        return np.column_stack([self.mean - reach, self.mean + reach])

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` draws of the coefficients, (count, k): no privacy depends on them."""
        standard: FloatMatrix = generator.standard_normal((count, len(self.location)))
        draws: FloatMatrix = (
            np.array(self.location) + np.array(self.scale) * standard
        ) @ self._to_data_units.T
        return draws

    @property
    def _to_data_units(self) -> FloatMatrix:
        """The linear map, shape (k, d), from normalised coefficients to those of the data."""
        centres = np.array([column.centre for column in self.feature_columns])
        slopes = 1.0 / np.array([column.scale for column in self.feature_columns])
        matrix: FloatMatrix = np.vstack([-centres * slopes, np.diag(slopes)])
        if self.intercept == 0.0:
            return matrix
        first = np.zeros(len(matrix))
        first[0] = self.intercept
        return np.column_stack([first, matrix])

    def _predictor(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of the linear predictor, shapes (n,), for `rows`.

        Values are cut to the features' bounds, as they were when it was learned.
        """
        rows = np.asarray(rows, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.features):
            raise ValueError(f"rows must have shape (n, {len(self.features)}): one per feature")
        centres = np.array([column.centre for column in self.feature_columns])
        scales = np.array([column.scale for column in self.feature_columns])
        design = np.clip((rows - centres) / scales, -1.0, 1.0)
        if self.intercept > 0.0:
            design = np.column_stack([np.full(len(design), self.intercept), design])
        return design @ np.array(self.location), np.linalg.norm(
            design * np.array(self.scale), axis=1
        )


class LogisticRegressionPosterior(_RegressionPosterior):
    """Posterior of a logistic regression's coefficients. TOO NARROW: see VariationalPosterior."""

    name: Literal["logistic_regression"] = "logistic_regression"

    def predict(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return the probability that the target is at its upper bound, and its posterior sd.

        Shapes (n,), for `rows`, shape (n, m); means over the posterior by Gauss and Hermite's rule.

        Raises:
            ValueError: `rows` does not have one column per feature.
        """
        mean, sd = self._predictor(rows)
        nodes, weights = np.polynomial.hermite_e.hermegauss(40)
        values = probability(mean[:, None] + sd[:, None] * nodes)
        weights = weights / weights.sum()
        expected = values @ weights
        spread = np.maximum((values - expected[:, None]) ** 2 @ weights, 0.0)
        return expected, np.sqrt(spread)


class PoissonRegressionPosterior(_RegressionPosterior):
    """Posterior of a Poisson regression's coefficients. TOO NARROW: see VariationalPosterior."""

    name: Literal["poisson_regression"] = "poisson_regression"

    def predict(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return the expected count and the rate's posterior sd, shapes (n,), for `rows`, (n, m).

        Raises:
            ValueError: `rows` does not have one column per feature.
        """
        mean, sd = self._predictor(rows)
        expected = rate(mean + 0.5 * sd**2)
        return expected, expected * np.sqrt(np.expm1(np.minimum(sd**2, 100.0)))


def quantile_of(level: float) -> float:
    """Return z such that a standard normal lies within +-z with probability `level`.

    Raises:
        ValueError: `level` is not strictly between 0 and 1.
    """
    if not 0.0 < level < 1.0:
        raise ValueError("the level of an interval must lie strictly between 0 and 1")
    return NormalDist().inv_cdf(0.5 + level / 2.0)
