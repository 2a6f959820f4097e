"""The posterior of a linear regression, in the units of the data; knows neither sums nor noise."""

from collections.abc import Mapping
from typing import Annotated, Literal, Protocol

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import Finite, FloatMatrix, FloatVector
from shoal_protocol.posteriors.grounds import Grounded
from shoal_protocol.posteriors.intervals import normal_intervals
from shoal_protocol.quantisation import to_box, to_unit_length
from shoal_protocol.queries import Column


class LinearRegressionPosterior(Grounded):
    """Gaussian posterior of a linear regression's coefficients, in the data's own units.

    `names` are "intercept", then the features. The covariance accounts for the records' scatter
    and for the privacy noise alike. `records` is how many records went into it. With `unit_rows`,
    one column per feature, the coefficients are those of rows that were centred and scaled by these
    columns, cut to [-1, 1] and divided by their norm; `predict` does the same.
    """

    variable = "coefficients"
    dimension = "coefficient"

    name: Literal["linear_regression"] = "linear_regression"
    target: str
    coefficients: tuple[Finite, ...]
    covariance: tuple[tuple[Finite, ...], ...]
    residual_sd: Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
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
    def features(self) -> tuple[str, ...]:
        """Names of the columns that `predict` expects, in order."""
        return tuple(name for name in self.names if name != "intercept")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record: the features, then the target."""
        return (*self.features, self.target)

    @property
    def mean(self) -> FloatVector:
        """Posterior mean of the coefficients, shape (k,), in the order of `names`."""
        return np.array(self.coefficients)

    @property
    def covariance_matrix(self) -> FloatMatrix:
        """Posterior covariance of the coefficients, shape (k, k)."""
        return np.array(self.covariance)

    @property
    def sd(self) -> FloatVector:
        """Posterior standard deviation of each coefficient, shape (k,)."""
        return np.sqrt(np.diagonal(self.covariance_matrix))

    def interval(self, level: float) -> FloatMatrix:
        """Return central credible intervals that hold `level` of each margin, shape (k, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        return normal_intervals(self.mean, self.sd, level)

    def predict(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of the target, shapes (n,), for `rows`, shape (n, m).

        The standard deviation is a new record's: coefficients and residual together.

        Raises:
            ValueError: `rows` does not have one column per feature.
        """
        if self.unit_rows is not None:
            rows = np.asarray(rows, dtype=np.float64)
            require_columns(rows, len(self.features))
            centres = np.array([column.centre for column in self.unit_rows])
            scales = np.array([column.scale for column in self.unit_rows])
            rows = to_unit_length(to_box(rows, centres, scales))
        return predicted(self, rows)

    def predict_interval(self, rows: FloatMatrix, level: float) -> FloatMatrix:
        """Return central intervals that hold `level` of a new record's target, shape (n, 2).

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """
        return normal_intervals(*self.predict(rows), level)

    def _facts(self) -> Mapping[str, str | int | float]:
        return {**super()._facts(), "target": self.target, "residual_sd": self.residual_sd}

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` draws of the coefficients, shape (count, k): no privacy depends on them.

        The square root of the covariance is its symmetric one, so a singular matrix is fine.
        """
        values, vectors = np.linalg.eigh(self.covariance_matrix)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        standard: FloatMatrix = generator.standard_normal((count, len(self.names)))
        draws: FloatMatrix = self.mean + standard @ root.T
        return draws


class Regression(Protocol):
    """What a prediction needs to know of a linear regression."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def features(self) -> tuple[str, ...]: ...
    @property
    def mean(self) -> FloatVector: ...
    @property
    def covariance_matrix(self) -> FloatMatrix: ...
    @property
    def residual_sd(self) -> float: ...


def predicted(posterior: Regression, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
    """Return mean and standard deviation of a new record's target for each of `rows`, (n, m).

    Raises:
        ValueError: `rows` does not have one column per feature.
    """
    rows = np.asarray(rows, dtype=np.float64)
    features = len(posterior.features)
    require_columns(rows, features)
    design = rows
    if features < len(posterior.names):
        design = np.column_stack([np.ones(len(rows)), rows])
    spread = np.einsum("ni,ij,nj->n", design, posterior.covariance_matrix, design)
    deviation = np.sqrt(np.maximum(spread, 0.0) + posterior.residual_sd**2)
    return design @ posterior.mean, deviation


def require_columns(rows: FloatMatrix, features: int) -> None:
    """Check that `rows` have one column per feature.

    Raises:
        ValueError: they do not.
    """
    if rows.ndim != 2 or rows.shape[1] != features:
        raise ValueError(f"rows must have shape (n, {features}): one per feature")
