"""Shared base of the posteriors of regressions learned by variational inference."""

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import FloatMatrix, FloatVector, RegressionPosterior
from shoal_protocol.posteriors.grounds import Prior
from shoal_protocol.posteriors.intervals import normal_quantiles
from shoal_protocol.posteriors.variational import VariationalPosterior
from shoal_protocol.queries import Column


class VariationalRegressionPosterior(RegressionPosterior, VariationalPosterior):
    """Coefficients of a linear predictor, in the data's own units.

    `names` are "intercept", then the features.

    In normalised units u_j = (x_j - centre_j) / scale_j the predictor is `intercept` b_0 +
    sum b_j u_j. `location` and `scale` are those of b, which is normal. Without a constant term
    `intercept` is 0 and there is no b_0.
    """

    feature_columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _one_for_each_coefficient(self) -> Self:
        if len(self.location) != len(self.feature_columns) + (self.intercept > 0.0):
            raise ValueError("location must have one number for each coefficient")
        if self.names != ("intercept", *(column.name for column in self.feature_columns)):
            raise ValueError("names must be the intercept and the features, in order")
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

    def _design(self, rows: FloatMatrix) -> FloatMatrix:
        """Values are cut to the features' bounds, as they were when it was learned."""
        centres = np.array([column.centre for column in self.feature_columns])
        scales = np.array([column.scale for column in self.feature_columns])
        return super()._design(np.clip(rows, centres - scales, centres + scales))

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
