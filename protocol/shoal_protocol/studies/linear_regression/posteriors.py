"""Posterior of a linear regression in the units of the data: a normal distribution."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import model_validator

from shoal_protocol.posteriors.base import FloatMatrix, FloatVector
from shoal_protocol.posteriors.grounds import Grounded
from shoal_protocol.posteriors.intervals import normal_quantiles
from shoal_protocol.queries import Column
from shoal_protocol.queries.quantisation import to_box, to_unit_length
from shoal_protocol.wire.numbers import Finite, PositiveSize


class LinearRegressionPosterior(Grounded):
    """Gaussian posterior of a linear regression's coefficients, in the data's own units.

    `names` are "intercept", then the features. The covariance accounts for the records' scatter
    and for the privacy noise alike. `records` is how many records went into it. With `unit_rows`,
    one column per feature, the coefficients are those of rows that were centred and scaled by these
    columns, cut to [-1, 1] and divided by their norm; `predict` does the same.
    """

    name: Literal["linear_regression"] = "linear_regression"
    coefficients: tuple[Finite, ...]
    covariance: tuple[tuple[Finite, ...], ...]
    residual_sd: PositiveSize
    unit_rows: tuple[Column, ...] | None = None

    @model_validator(mode="after")
    def _shapes_agree(self) -> "LinearRegressionPosterior":
        size = len(self.names)
        if len(self.coefficients) != size or [len(row) for row in self.covariance] != [size] * size:
            raise ValueError("names, coefficients and covariance must have the same size")
        columns = self.unit_rows
        if columns is not None and tuple(column.name for column in columns) != self.features:
            raise ValueError("unit rows need one column per feature, in order")
        return self

    @property
    def mean(self) -> FloatVector:
        return np.array(self.coefficients)

    @property
    def covariance_matrix(self) -> FloatMatrix:
        """Posterior covariance of the coefficients, shape (k, k)."""
        return np.array(self.covariance)

    @property
    def sd(self) -> FloatVector:
        return np.sqrt(np.diagonal(self.covariance_matrix))

    @property
    def _record_sd(self) -> float:
        return self.residual_sd

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        return normal_quantiles(self.mean, self.sd, high)

    def _scaled(self, rows: FloatMatrix) -> FloatMatrix:
        if self.unit_rows is None:
            return rows
        centres = np.array([column.centre for column in self.unit_rows])
        scales = np.array([column.scale for column in self.unit_rows])
        return to_unit_length(to_box(rows, centres, scales))

    def _attributes(self) -> Mapping[str, str | int | float]:
        return {**super()._attributes(), "residual_sd": self.residual_sd}

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` draws of the coefficients, shape (count, k): no privacy depends on them.

        The square root of the covariance is its symmetric one, so a singular matrix is fine.
        """
        values, vectors = np.linalg.eigh(self.covariance_matrix)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        standard: FloatMatrix = generator.standard_normal((count, len(self.names)))
        draws: FloatMatrix = self.mean + standard @ root.T
        return draws
