"""What nested noisy counts of one variable tell of every sum of its bins; exact for normal noise.

Bins 0 to K - 1 are counted at several widths, a power of the others each, and so are the records
without a value; all records together are counted, too. Weighed least squares of all of it has a
closed form: the design's eigenspaces are the contrasts within the nodes of one width that the next
finer width tells apart. Proof: docs/mathematics.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class NoisyLevel:
    """Counts of nodes of `width` bins each, and last of records without a value; noise of `sd`."""

    width: int
    counts: Floats
    sd: float


@dataclass(frozen=True)
class CountTree:
    """The law of the true counts given `levels`, coarse ones first, and a noisy `total`.

    The last level's nodes are the bins; each level's width is a multiple of the next one's. The law
    is normal. It knows nothing of counts not being negative: that would pull sums of many bins.
    """

    levels: Sequence[NoisyLevel]
    total: float
    total_sd: float

    @cached_property
    def _precisions(self) -> list[float]:
        """The precision of a unit vector in each level's space of contrasts."""
        parts = [level.width / level.sd**2 for level in self.levels]
        return [sum(parts[place:]) for place in range(len(parts))]

    @property
    def size(self) -> int:
        """K, the number of bins."""
        return len(self.levels[-1].counts) - 1

    @cached_property
    def _fit(self) -> tuple[Floats, float]:
        """The mean of the bins, shape (K,), and of the records without a value."""
        weighed = sum(np.repeat(each.counts[:-1], each.width) / each.sd**2 for each in self.levels)
        bins, coarser = np.zeros(self.size), np.zeros(self.size)
        for level, precision in zip(self.levels, self._precisions, strict=True):
            means = np.repeat(np.mean(np.reshape(weighed, (-1, level.width)), axis=1), level.width)
            bins += (means - coarser) / precision
            coarser = means
        missing = self._missing_variance * sum(each.counts[-1] / each.sd**2 for each in self.levels)
        gap = (self.total - bins.sum() - missing) / self._total_variance
        return bins + gap / self._precisions[0], float(missing + gap * self._missing_variance)

    @cached_property
    def _missing_variance(self) -> float:
        return 1.0 / sum(1.0 / each.sd**2 for each in self.levels)

    @cached_property
    def _total_variance(self) -> float:
        """Of the total less what the tables say it is."""
        return self.size / self._precisions[0] + self._missing_variance + self.total_sd**2

    @property
    def bins(self) -> Floats:
        """Means of the bins' counts, shape (K,)."""
        return self._fit[0]

    @property
    def missing(self) -> float:
        """Mean of how many records have no value."""
        return self._fit[1]

    @property
    def missing_sd(self) -> float:
        """Its standard deviation."""
        variance = self._missing_variance - self._missing_variance**2 / self._total_variance
        return float(np.sqrt(variance))

    def sd(self, weights: Floats) -> float:
        """Return the standard deviation of a sum of the bins with these `weights`, shape (K,)."""
        variance, coarser = 0.0, 0.0
        for level, precision in zip(self.levels, self._precisions, strict=True):
            means = np.mean(np.reshape(weights, (-1, level.width)), axis=1)
            squares = level.width * float(means @ means)
            variance += (squares - coarser) / precision
            coarser = squares
        shared = float(np.sum(weights)) / self._precisions[0]
        return float(np.sqrt(max(variance - shared**2 / self._total_variance, 0.0)))

    def below(self, share: float) -> tuple[Floats, Floats]:
        """Return how many more records are below each edge than `share` of those with a value.

        Means and standard deviations, shapes (K + 1,).
        """
        edges = np.arange(self.size + 1)
        means = np.concatenate([[0.0], np.cumsum(self.bins)]) - share * self.bins.sum()
        variance, coarser = np.zeros(self.size + 1), np.zeros(self.size + 1)
        for level, precision in zip(self.levels, self._precisions, strict=True):
            nodes, part = np.divmod(edges, level.width)
            split = np.where(part > 0, (part / level.width - share) ** 2, 0.0)
            rest = self.size // level.width - nodes - (part > 0)
            squares = level.width * (nodes * (1.0 - share) ** 2 + split + rest * share**2)
            variance += (squares - coarser) / precision
            coarser = squares
        shared = (edges - share * self.size) / self._precisions[0]
        variance -= shared**2 / self._total_variance
        return means, np.sqrt(np.maximum(variance, 0.0))
