"""Posteriors of variational inference: a normal in unconstrained space, and what it says in the
data's units. They know neither gradients nor noise, only whether whoever made them did.
"""

import base64
from collections.abc import Mapping
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.encoding import Base64
from shoal_protocol.models.regressions import probability, rate
from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.posteriors.convergence import MOST_CORRELATED, Convergence
from shoal_protocol.posteriors.showing import ShownPredictions
from shoal_protocol.queries import Column

_LARGEST: Final = 1e30  # as of a column's bounds: products and squares of it are still floats
_Location = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]
_Scale = Annotated[float, Field(ge=1e-30, le=_LARGEST, allow_inf_nan=False)]

_MEAN_FIELD: Final = (
    "a mean-field approximation of too few rounds to know of their noise: intervals are too "
    "narrow, and clipping or too few rounds pull the values themselves: simulate the job to see "
    "how far"
)
_BY_COORDINATE: Final = (
    "correlations are left out, as of all posteriors of so many numbers: intervals are too narrow "
    "where numbers are correlated"
)
_KNOWN: Final = "of privacy noise and batches"
_CLIPPED: Final = "what clipping does to the values is in no interval: simulate the job to see it"


def _is_none(value: object) -> bool:
    return value is None


class VariationalPosterior(BasePosterior):
    """A normal distribution of d unconstrained numbers: `location` and `scale`, shapes (d,).

    With `convergence` it knows of the privacy noise and of batches; what clipping does to the
    values no sum shows. `correlation` packs the lower Cholesky factor of the correlation matrix,
    row by row, as little-endian doubles; without it coordinates are independent. Without
    `convergence` it is a mean-field approximation, and TOO NARROW: `caution` says so. `records` is
    how many went into it at most: one for each client that joined, or as many as a client may have.
    """

    location: Annotated[tuple[_Location, ...], Field(min_length=1, max_length=10_000)]
    scale: tuple[_Scale, ...]
    # Left out where there is none: so a report signed before there were any is read as ever.
    correlation: Base64 | None = Field(default=None, exclude_if=_is_none)
    convergence: Convergence | None = Field(default=None, exclude_if=_is_none)

    @model_validator(mode="after")
    def _one_scale_for_each(self) -> Self:
        if len(self.scale) != len(self.location):
            raise ValueError("location and scale must have the same length")
        if self.convergence is not None and len(self.convergence.slopes) != len(self.location):
            raise ValueError("convergence must have one number for each of the location")
        if self.correlation is not None and self.convergence is None:
            raise ValueError("a posterior with correlations has a convergence")
        _unpacked(self.correlation, len(self.location))
        return self

    @property
    def inference(self) -> Literal["noise_aware", "noise_aware_by_coordinate", "mean_field"]:
        """What the intervals know of: noise and correlations, noise alone, or neither."""
        if self.convergence is None:
            return "mean_field"
        return "noise_aware_by_coordinate" if self.correlation is None else "noise_aware"

    @property
    def caution(self) -> str:
        """What must be known before the posterior is used: of clipping in any case."""
        if self.convergence is None:
            return _MEAN_FIELD
        by_coordinate = None if self.inference == "noise_aware" else _BY_COORDINATE
        said = (self.convergence.caution, by_coordinate, _CLIPPED)
        return "; ".join(each for each in said if each is not None)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What a summary says of how the posterior was found."""
        if self.convergence is None:
            return ()
        return (("Intervals know", _KNOWN), ("Path", str(self.convergence)))

    @cached_property
    def _factor(self) -> FloatMatrix | None:
        return _unpacked(self.correlation, len(self.location))

    def _root_of(self, rows: FloatMatrix) -> FloatMatrix:
        """Return rows A, shape (n, d), times a root of the covariance C: A C A' is its square."""
        scaled: FloatMatrix = rows * np.array(self.scale)
        return scaled if self._factor is None else scaled @ self._factor

    def _unconstrained(self, standard: FloatMatrix) -> FloatMatrix:
        """Return the unconstrained numbers, shape (n, d), of standard normal ones."""
        turned = standard if self._factor is None else standard @ self._factor.T
        values: FloatMatrix = np.array(self.location) + np.array(self.scale) * turned
        return values

    def __repr__(self) -> str:
        numbers, kind = len(self.location), type(self).__name__
        return f"<{kind} of {numbers} numbers from {self.records} records: {self.caution}>"

    def __str__(self) -> str:
        return repr(self)

    def _facts(self) -> Mapping[str, str | int | float]:
        path = {} if self.convergence is None else {"path": str(self.convergence)}
        return {
            **super()._facts(),
            "inference": self.inference,
            "caution": self.caution,
            **path,
        }


class _RegressionPosterior(ShownPredictions, VariationalPosterior):
    """Coefficients of a linear predictor, in the data's own units.

    `names` are "intercept", then the features.

    In normalised units u_j = (x_j - centre_j) / scale_j the predictor is `intercept` b_0 +
    sum b_j u_j, with b normal: that is what `location` and `scale` are of. Without a constant
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
        for column in self.feature_columns:
            if not (abs(column.centre) <= _LARGEST and 0.5 / _LARGEST <= column.scale <= _LARGEST):
                raise ValueError("feature columns must have centres and scales of columns' bounds")
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
        root = self._root_of(self._to_data_units)
        covariance: FloatMatrix = root @ root.T
        return covariance

    @property
    def sd(self) -> FloatVector:
        """Posterior standard deviation of each coefficient, shape (k,)."""
        return np.sqrt(np.diagonal(self.covariance_matrix))

    def interval(self, level: float) -> FloatMatrix:
        """Return central intervals that hold `level` of each margin, shape (k, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        reach = quantile_of(level) * self.sd
        return np.column_stack([self.mean - reach, self.mean + reach])

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` draws of the coefficients, (count, k): no privacy depends on them."""
        standard: FloatMatrix = generator.standard_normal((count, len(self.location)))
        draws: FloatMatrix = self._unconstrained(standard) @ self._to_data_units.T
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
        return design @ np.array(self.location), np.linalg.norm(self._root_of(design), axis=1)


class LogisticRegressionPosterior(_RegressionPosterior):
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


class PoissonRegressionPosterior(_RegressionPosterior):
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


def quantile_of(level: float) -> float:
    """Return z such that a standard normal lies within +-z with probability `level`.

    Raises:
        ValueError: `level` is not strictly between 0 and 1.
    """
    if not 0.0 < level < 1.0:
        raise ValueError("the level of an interval must lie strictly between 0 and 1")
    return NormalDist().inv_cdf(0.5 + level / 2.0)


def packed(factor: FloatMatrix) -> str:
    """Return a lower triangular matrix's rows, up to the diagonal, as doubles in base64."""
    rows = factor[np.tril_indices(len(factor))] + 0.0  # no -0: one factor is one document
    return base64.b64encode(np.ascontiguousarray(rows, dtype="<f8").tobytes()).decode()


def _unpacked(correlation: str | None, size: int) -> FloatMatrix | None:
    if correlation is None:
        return None
    raw = base64.b64decode(correlation)
    if size > MOST_CORRELATED or len(raw) != 8 * (size * (size + 1) // 2):
        raise ValueError(f"correlations: d (d + 1)/2 doubles, of at most {MOST_CORRELATED} numbers")
    if np.any(np.signbit(values := np.frombuffer(raw, "<f8")) & (values == 0.0)):
        raise ValueError("a factor of correlations has no negative zeros")
    factor = np.zeros((size, size))
    factor[np.tril_indices(size)] = values
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(factor, axis=1)
    if not np.allclose(lengths, 1.0, rtol=0.0, atol=1e-9) or np.any(np.diagonal(factor) < 0.0):
        raise ValueError("rows of a factor of correlations have length 1, the last number >= 0")
    return factor
