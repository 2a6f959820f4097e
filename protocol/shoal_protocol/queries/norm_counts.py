"""The query that counts a client's rows by their norm."""

import math
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.design import Mechanism, NoiseDesign
from shoal_protocol.queries.moments import Moments

NORM_BINS: Final = 27
NORM_RATIO: Final = 1.15
"""Each bin's largest norm relative to that of the bin before: 26 of them span a factor of 37."""


class NormCounts(Moments):
    """Counts the rows in each of 27 ranges of the norm |w|, shortest first, times B^2.

    The longest rows, of squared norm T = L in a ball and m B^2 + k^2 in the box, are in the last
    bin. Row w is in bin j if it is in none before and |w|^2 <= T 1.15^(-2 (26 - j)). The factor B^2
    gives the noise a grid to be rounded to. The number of rows follows, with noise of its own:
    that of the bins' sum is 27 times as large.
    """

    name: Literal["norm_counts"] = "norm_counts"

    @property
    def dimension(self) -> int:
        """Length of the vector, 28."""
        return NORM_BINS + 1

    def largest_squares(self) -> NDArray[np.float64]:
        """Return the largest squared norm of each bin, shape (27,), in lattice units."""
        top = self.squared_norm_limit
        if top is None:
            top = len(self.columns) * self.grid**2 + self.constant**2
        steps = np.arange(NORM_BINS - 1, -1, -1, dtype=np.float64)
        squares: NDArray[np.float64] = top * np.power(NORM_RATIO, -2.0 * steps)
        return squares

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """The same noise everywhere; L2 sqrt(2) r B^2, L1 2 r B^2."""
        square = float(self.grid**2)
        both = math.sqrt(2.0) if mechanism == "discrete_gaussian" else 2.0
        return self._with_count(mechanism, (NORM_BINS, 1.0), changed=both * square, left_out=square)

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many `rows` are in each bin of norms, and their number, shape (28,)."""
        bins = np.searchsorted(self.largest_squares()[:-1], np.sum(rows * rows, axis=1))
        counts = self.grid**2 * np.bincount(bins, minlength=NORM_BINS).astype(np.int64)
        return self._counted(counts, rows)
