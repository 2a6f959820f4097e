"""The sum of a client's rows, as a query; knows no noise and no budget."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.design import (
    Mechanism,
    NoiseBlock,
    NoiseDesign,
    require_length,
    rounded_up,
)
from shoal_protocol.queries.moments import Moments


class FirstMoments(Moments):
    """Sum over the records of B (w_1, ..., w_p).

    The factor B gives the noise as fine a grid as the squares have.
    """

    name: Literal["first_moments"] = "first_moments"

    @property
    def dimension(self) -> int:
        """Length of the vector, p."""
        return self.width

    @property
    def largest_value(self) -> int:
        """Largest magnitude that a coordinate of `encode` can have."""
        reach = self.grid
        if self.squared_norm_limit is not None:
            reach = min(reach, math.isqrt(self.squared_norm_limit))
        return reach * self.grid * self.records_per_client

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """The same noise everywhere.

        In the box each column's sum moves by up to 2 r B^2, which no record left out exceeds; with
        a ball to shrink it, the intercept's by r k B; in the ball L2 2 r R B^2, L1 2 r R B^2
        sqrt(p).
        """
        gaussian = mechanism == "discrete_gaussian"
        limit, records = self.squared_norm_limit, self.records_per_client
        column = 2.0 * self.grid * records
        rest = 0.0 if limit is None else float(self.constant * records)
        if gaussian:
            sensitivity = math.hypot(math.sqrt(len(self.columns)) * column, rest)
        else:
            sensitivity = len(self.columns) * column + rest
        if limit is not None:
            squared = limit if gaussian else limit * self.width
            sensitivity = min(sensitivity, 2.0 * records * math.sqrt(squared))
        return NoiseDesign(
            sensitivity=rounded_up(sensitivity * self.grid),
            blocks=(NoiseBlock(coordinates=self.width, relative_scale=1.0),),
        )

    def encode(self, records: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the client's contribution, shape (p,), from `records`, shape (r, len(columns)).

        Raises:
            ValueError: wrong shape, too many records, or a number that is not finite.
        """
        total: NDArray[np.int64] = self.grid * np.sum(self.rows(records), axis=0)
        return total

    def moments_from(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return a sum of contributions, shape (p,), in normalised units (divided by B^2).

        Raises:
            ValueError: `values` does not have the length `dimension`.
        """
        require_length(values, self.dimension)
        return values / float(self.grid**2)
