"""The sums of a client's columns and of their squares, as a query."""

import math
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from shoal_protocol.queries.design import Mechanism, NoiseDesign
from shoal_protocol.queries.moments import Moments

_MOST_IN_L1 = 2.25  # of d (3 - d), at d = 3/2


class ColumnMoments(Moments):
    """Sum over the records of B (w_1, ..., w_m) and (w_1^2, ..., w_m^2), and B^2 their number.

    There is neither a constant nor a ball. The factor B gives all sums one unit.
    """

    name: Literal["column_moments"] = "column_moments"

    @model_validator(mode="after")
    def _in_a_box(self) -> Self:
        if self.intercept != 0.0 or self.radius is not None:
            raise ValueError("moments of columns have neither a constant nor a ball")
        return self

    @property
    def dimension(self) -> int:
        """Length of the vector, 2 m + 1."""
        return 2 * len(self.columns) + 1

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """The same noise everywhere but on the number of records.

        A record in another's place moves the two sums of a column by B^2 |u - v| (1, |u + v|),
        where |u + v| is at most 2 - |u - v|: L2 2 B^2, L1 9/4 B^2. One left out moves them by
        B^2 (|u|, u^2): L2 sqrt(2) B^2, L1 2 B^2.
        """
        columns, square = len(self.columns), float(self.grid**2)
        if mechanism == "discrete_gaussian":
            changed, left_out = 2.0 * math.sqrt(columns), math.sqrt(2.0 * columns)
        else:
            changed, left_out = _MOST_IN_L1 * columns, 2.0 * columns
        return self._with_count(
            mechanism, (2 * columns, 1.0), changed=changed * square, left_out=left_out * square
        )

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return sums, sums of squares and the number of `rows`, shape (2 m + 1,)."""
        sums = np.concatenate([self.grid * np.sum(rows, axis=0), np.sum(rows * rows, axis=0)])
        return self._counted(sums, rows)
