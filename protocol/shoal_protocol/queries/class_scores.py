"""The query of a multinomial regression's round: sums of each class's scores, and their squares."""

import math
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.queries import quantisation
from shoal_protocol.queries.design import Mechanism, NoiseDesign
from shoal_protocol.queries.moments import Moments
from shoal_protocol.queries.scores import LARGEST_PREDICTOR, SQUARES_SCALE, Coordinate, Floats
from shoal_protocol.queries.weighted_rows import shrinking


class ClassScoreSum(Moments):
    """Sum over the records of B w, w^2, and B^2 times their number.

    w = trunc(B f^2 (d_k - q_k) x / (sqrt(2) R)) for one class after the other: x is the constant
    and the features, f = min(1, R / |x|) with R the `radius`, d_k 1 if the record is of class k,
    else 0, and q_k its probability, exp(x'u_k) over the sum of all classes', u_k class k's part of
    the `point`. As a record is of one class at most, the sizes of d_k - q_k sum to at most 2, and
    their squares to 2. So |w| <= B, whatever the point.

    The last columns, one for each of the `classes`, say of which it is: the first that is above the
    middle of its bounds.
    """

    name: Literal["class_score_sum"] = "class_score_sum"
    classes: Annotated[int, Field(ge=2, le=64, strict=True)]
    point: Annotated[tuple[Coordinate, ...], Field(min_length=4, max_length=10_000)]

    @model_validator(mode="after")
    def _has_features(self) -> Self:
        if len(self.columns) <= self.classes or self.intercept == 0.0:
            raise ValueError("class scores need a constant, a feature and a column for each class")
        if len(self.point) != self.width:
            raise ValueError("the point has one coordinate for each class and constant or feature")
        if self.radius is None:
            raise ValueError("scores need a radius")
        return self

    @property
    def width(self) -> int:
        """n, the length of a score: of each class one for the constant, and for each feature."""
        return self.classes * (len(self.columns) - self.classes + 1)

    @property
    def squared_norm_limit(self) -> int:
        """Largest squared norm of a score, in lattice units: B^2, for it is in the unit ball."""
        return self.grid**2

    @property
    def dimension(self) -> int:
        """Length of the vector, 2 n + 1."""
        return 2 * self.width + 1

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """Half as much noise on scores as on squares; as `ScoreSum`, without cut residuals.

        L2 2 B^2, and one left out sqrt(1 + 1/4) B^2. In L1, p the constant and the features, scores
        are at most sqrt(2 p) B^2, and half their squares B^2 / 2: one left out (sqrt(2 p) + 1/2)
        B^2, one in another's place twice that, or 2 sqrt(n + 1) B^2 if that is less.
        """
        if mechanism == "discrete_gaussian":
            changed, left_out = 2.0, math.sqrt(1.25)
        else:
            left_out = math.sqrt(2.0 * self.width / self.classes) + 0.5
            changed = min(2.0 * left_out, 2.0 * math.sqrt(self.width + 1))
        blocks, square = ((self.width, 1.0), (self.width, SQUARES_SCALE)), self.grid**2
        return self._with_count(
            mechanism, *blocks, changed=changed * square, left_out=left_out * square
        )

    def _arranged(self, boxed: Floats) -> Floats:
        """Return scores over sqrt(2) R, within the unit ball, shape (r, n)."""
        rows, radius = super()._arranged(boxed[:, : -self.classes]), self.radius or 0.0
        predictors = rows @ np.array(self.point).reshape(self.classes, -1).T
        is_of = boxed[:, -self.classes :] > 0.0
        is_of &= np.cumsum(is_of, axis=1) == 1  # of the first, if columns say it of several
        residuals = is_of - class_probabilities(predictors)
        weighted = rows * (shrinking(rows, radius) ** 2 / (math.sqrt(2.0) * radius))[:, None]
        scores: Floats = residuals[:, :, None] * weighted[:, None, :]
        return scores.reshape(len(rows), self.width)

    def _on_the_lattice(self, arranged: Floats) -> NDArray[np.int64]:
        return quantisation.to_lattice(arranged, radius=1.0, grid_bits=self.grid_bits)

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return sums, sums of squares and the number of `rows`, shape (2 n + 1,)."""
        sums = np.concatenate([self.grid * rows.sum(axis=0), np.sum(rows * rows, axis=0)])
        return self._counted(sums, rows)


def class_probabilities(predictors: Floats) -> Floats:
    """Return the probabilities of classes with these predictors, shapes (..., K), cut to +-30."""
    sizes = np.exp(np.clip(predictors, -LARGEST_PREDICTOR, LARGEST_PREDICTOR))
    shares: Floats = sizes / np.sum(sizes, axis=-1, keepdims=True)
    return shares
