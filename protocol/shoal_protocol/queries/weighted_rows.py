"""The moment matrix of rows that are weighted by how far out their features are, as a query."""

import math
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from shoal_protocol.queries.moments import MomentMatrix

TARGET_PART: Final = 0.7
"""The target's largest coordinate, over the largest norm of a row's features."""
LARGEST_RADIUS: Final = 1.4
"""Of the ball of whole rows: below sqrt(2), so that there is a ball, whatever the columns."""


class WeightedRowMatrix(MomentMatrix):
    """The moment matrix of rows f (x, t y): x the constant and the features, y the target.

    f = min(1, R / |x|) shrinks x into the ball of radius R = radius / sqrt(1 + .7^2), and t = .7 R.
    A weight that hangs on the features alone leaves a regression of y on x without bias (Mallows
    weights: Hampel et al. 1986, section 6.3), other than one that hangs on y.
    """

    name: Literal["weighted_row_matrix"] = "weighted_row_matrix"

    @model_validator(mode="after")
    def _has_features(self) -> Self:
        if len(self.columns) < 2:
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

    def _arranged(self, boxed: NDArray[np.float64]) -> NDArray[np.float64]:
        whole = super()._arranged(boxed)
        whole[:, -1] *= self.target_limit
        return whole * shrinking(whole[:, :-1], self.feature_radius)[:, None]


def shrinking(rows: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Return by what to multiply `rows`, shape (r, p), to have them in the ball, shape (r,)."""
    norms = np.linalg.norm(rows, axis=1)
    factors: NDArray[np.float64] = radius / np.maximum(norms, radius)
    return factors
