"""The moment matrix of rows that are weighted by how far out their features are, as a query."""

import math
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.queries.columns import Column
from shoal_protocol.queries.moments import MomentMatrix, Moments

Floats = NDArray[np.float64]

TARGET_PART: Final = 0.7
"""The target's largest coordinate, over the largest norm of a row's features."""
LARGEST_RADIUS: Final = 1.4
"""Of the ball of whole rows: below sqrt(2), so that there is a ball, whatever the columns."""


class RegressionMoments(Moments):
    """Base of the queries whose last column is a target, or with `record_weights` comes before it.

    The last column is then s, what a record counts for, over its largest: cut to [0, 1], it makes
    no row longer, so what bounds rows bounds these. As a record, or a cut residual, it is one.
    """

    record_weights: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _weights_are_shares(self) -> Self:
        last = self.columns[-1]
        if self.record_weights and last.scale > last.centre:
            raise ValueError("weights of records have a lower bound of 0 or more")
        return self

    @property
    def regressed(self) -> tuple[Column, ...]:
        """The features, then the target."""
        return self.columns[:-1] if self.record_weights else self.columns

    @property
    def width(self) -> int:
        """p, the length of a row: a weight is no coordinate of it."""
        return len(self.regressed) + (self.intercept > 0.0)

    def _parted(self, boxed: Floats) -> tuple[Floats, Floats]:
        """Return columns without the weight, and s: 1 without one, shape (r,)."""
        if not self.record_weights:
            return boxed, np.ones(len(boxed))
        last = self.columns[-1]
        weights = last.centre + last.scale * boxed[:, -1]
        return boxed[:, :-1], np.clip(weights / (last.centre + last.scale), 0.0, 1.0)


class WeightedRowMatrix(RegressionMoments, MomentMatrix):
    """The moment matrix of rows f sqrt(s) (x, t y): x the constant and the features, y the target.

    f = min(1, R / |x|) shrinks x into the ball of radius R = radius / sqrt(1 + .7^2), and t = .7 R.
    A weight that hangs on the features alone leaves a regression of y on x without bias (Mallows
    weights: Hampel et al. 1986, section 6.3), other than one that hangs on y.
    """

    name: Literal["weighted_row_matrix"] = "weighted_row_matrix"

    @model_validator(mode="after")
    def _has_features(self) -> Self:
        if len(self.regressed) < 2:
            raise ValueError("weighted rows need a feature and a target: name two columns or more")
        if self.radius is None or self.radius > LARGEST_RADIUS:
            raise ValueError(f"weighted rows need a radius of at most {LARGEST_RADIUS}")
        return self

    @property
    def feature_radius(self) -> float:
        """R, the largest norm of a weighted row's constant and features."""
        return (self.radius or 0.0) / math.hypot(1.0, TARGET_PART)

    @property
    def target_limit(self) -> float:
        """t, what the target is multiplied by."""
        return TARGET_PART * self.feature_radius

    def _arranged(self, boxed: Floats) -> Floats:
        regressed, shares = self._parted(boxed)
        whole = super()._arranged(regressed)
        whole[:, -1] *= self.target_limit
        sizes = shrinking(whole[:, :-1], self.feature_radius) * np.sqrt(shares)
        return np.asarray(whole * sizes[:, None])


def shrinking(rows: Floats, radius: float) -> Floats:
    """Return by what to multiply `rows`, shape (r, p), to have them in the ball, shape (r,)."""
    norms = np.linalg.norm(rows, axis=1)
    factors: Floats = radius / np.maximum(norms, radius)
    return factors
