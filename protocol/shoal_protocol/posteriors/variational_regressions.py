"""Posteriors of logistic and Poisson regressions, and their predictions; they know no gradients."""

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import FloatMatrix, FloatVector, RegressionPosterior
from shoal_protocol.posteriors.grounds import Prior
from shoal_protocol.posteriors.intervals import normal_intervals, normal_quantiles
from shoal_protocol.posteriors.variational import LARGEST, VariationalPosterior
from shoal_protocol.queries import Column
from shoal_protocol.queries.models.regressions import probability, rate


class _VariationalRegression(RegressionPosterior, VariationalPosterior):
    """Coefficients of a linear predictor, in the data's own units.

    `names` are "intercept", then the features.

    In normalised units u_j = (x_j - centre_j) / scale_j the predictor is `intercept` b_0 +
    sum b_j u_j, with b normal: that is what `location` and `scale` are of. Without a constant
    term `intercept` is 0 and there is no b_0.
    """

    feature_columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _one_for_each_coefficient(self) -> Self:
        if len(self.location) != len(self.feature_columns) + (self.intercept > 0.0):
            raise ValueError("location must have one number for each coefficient")
        if self.names != ("intercept", *(column.name for column in self.feature_columns)):
            raise ValueError("names must be the intercept and the features, in order")
        for column in self.feature_columns:
            if not (abs(column.centre) <= LARGEST and 0.5 / LARGEST <= column.scale <= LARGEST):
                raise ValueError("feature columns must have centres and scales of columns' bounds")
        return self

    @property
    def mean(self) -> FloatVector:
        mean: FloatVector = self._to_data_units @ np.array(self.location)
        return mean

    @property
    def covariance_matrix(self) -> FloatMatrix:
        """Posterior covariance of the coefficients, shape (k, k)."""
        root = self.root_of(self._to_data_units)
        covariance: FloatMatrix = root @ root.T
        return covariance

    @property
    def sd(self) -> FloatVector:
        return np.sqrt(np.diagonal(self.covariance_matrix))

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        return normal_quantiles(self.mean, self.sd, high)

    @property
    def prior(self) -> Prior | None:
        if self.prior_sd is None:
            return None
        sd = np.linalg.norm(self._to_data_units * np.array(self.prior_sd), axis=1)
        return Prior(np.zeros(len(sd)), sd)

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        standard: FloatMatrix = generator.standard_normal((count, len(self.location)))
        draws: FloatMatrix = self.unconstrained_from(standard) @ self._to_data_units.T
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
        rows = self._checked_rows(rows)
        centres = np.array([column.centre for column in self.feature_columns])
        scales = np.array([column.scale for column in self.feature_columns])
        design = np.clip((rows - centres) / scales, -1.0, 1.0)
        if self.intercept > 0.0:
            design = np.column_stack([np.full(len(design), self.intercept), design])
        return design @ np.array(self.location), np.linalg.norm(self.root_of(design), axis=1)


class LogisticRegressionPosterior(_VariationalRegression):
    """Posterior of a logistic regression's coefficients: see VariationalPosterior."""

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

    def predict_interval(self, rows: FloatMatrix, level: float) -> FloatMatrix:
        """Return intervals that hold `level` of the posterior of that probability, shape (n, 2).

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """
        return probability(normal_intervals(*self._predictor(rows), level))


class PoissonRegressionPosterior(_VariationalRegression):
    """Posterior of a Poisson regression's coefficients: see VariationalPosterior."""

    name: Literal["poisson_regression"] = "poisson_regression"

    def predict(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return the expected count and the rate's posterior sd, shapes (n,), for `rows`, (n, m).

        Raises:
            ValueError: `rows` does not have one column per feature.
        """
        mean, sd = self._predictor(rows)
        expected = rate(mean + 0.5 * sd**2)
        share = np.sqrt(np.expm1(np.minimum(sd**2, 100.0)))
        return expected, expected * np.minimum(share, 1e308 / np.maximum(expected, 1.0))

    def predict_interval(self, rows: FloatMatrix, level: float) -> FloatMatrix:
        """Return intervals that hold `level` of the posterior of the rate, shape (n, 2).

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """
        return rate(normal_intervals(*self._predictor(rows), level))
