"""A factor whose levels have effects under one prior, such as the site: their spread and each."""

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import FloatMatrix, FloatVector
from shoal_protocol.posteriors.intervals import normal_intervals, require_level
from shoal_protocol.posteriors.known import Part
from shoal_protocol.queries.columns import ColumnName
from shoal_protocol.wire.numbers import PositiveSize

_Share = Annotated[float, Field(ge=0.0, le=1.0)]


@dataclass(frozen=True)
class Effects:
    """Effects of a factor's levels about their mean, normal: shapes (l,)."""

    names: tuple[str, ...]
    mean: FloatVector
    sd: FloatVector

    def interval(self, level: float) -> FloatMatrix:
        """Return central intervals that hold `level` of each effect, shape (l, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        return normal_intervals(self.mean, self.sd, level)


class PooledFactor(Part):
    """Effects of the levels of `variable` are normal with an unknown standard deviation.

    That is one of `spreads`, in the predictor's units, with the probabilities `shares`. `columns`
    are those of the levels but the reference.
    """

    variable: str
    columns: Annotated[tuple[ColumnName, ...], Field(min_length=1)]
    spreads: Annotated[tuple[PositiveSize, ...], Field(min_length=2)]
    shares: tuple[_Share, ...]

    @model_validator(mode="after")
    def _is_distribution(self) -> Self:
        if len(self.shares) != len(self.spreads) or abs(sum(self.shares) - 1.0) > 1e-6:
            raise ValueError("each spread needs its probability, and all of them are 1")
        if np.any(np.diff(self.spreads) <= 0.0):
            raise ValueError("spreads must rise")
        return self

    @property
    def mean(self) -> float:
        """Posterior mean of the standard deviation."""
        return float(np.dot(self.shares, self.spreads))

    @property
    def sd(self) -> float:
        """Posterior standard deviation of the standard deviation."""
        return float(np.dot(self.shares, (np.array(self.spreads) - self.mean) ** 2) ** 0.5)

    def interval(self, level: float) -> tuple[float, float]:
        """Return the central interval that holds `level` of the standard deviation.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        require_level(level)
        spreads = np.array(self.spreads)
        between = np.sqrt(spreads[1:] * spreads[:-1])
        edges = np.concatenate([[0.0], between, spreads[-1:] ** 2 / between[-1:]])
        below = np.append(0.0, np.cumsum(self.shares))
        low, high = np.interp([0.5 - level / 2.0, 0.5 + level / 2.0], below, edges)
        return float(low), float(high)

    def effects(
        self, names: tuple[str, ...], mean: FloatVector, covariance: FloatMatrix
    ) -> Effects:
        """Return all levels' effects from the coefficients `names`, shapes (k,) and (k, k)."""
        count = len(self.columns)
        own = np.zeros((count + 1, len(names)))
        own[np.arange(count), [names.index(each) for each in self.columns]] = 1.0
        own -= own.mean(axis=0)
        variances = np.einsum("ij,jk,ik->i", own, covariance, own)
        return Effects(
            names=(
                *(f"{each} about the mean" for each in self.columns),
                "reference about the mean",
            ),
            mean=own @ mean,
            sd=np.sqrt(np.maximum(variances, 0.0)),
        )
