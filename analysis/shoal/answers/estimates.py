"""Numbers with intervals that show themselves as a table, and the tail of a chi-square."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.posteriors.base import LEVEL
from shoal_protocol.posteriors.intervals import normal_intervals
from shoal_protocol.posteriors.summaries import Summary

Floats = NDArray[np.float64]

ANYWHERE: Final = (-math.inf, math.inf)


@dataclass(frozen=True)
class Estimates:
    """Numbers `names` with `mean` and `sd`, shapes (k,), normal and within `limits`.

    `caution` is to be read first, if there is one.
    """

    title: str
    names: tuple[str, ...]
    mean: Floats
    sd: Floats
    limits: tuple[float, float] = ANYWHERE
    caution: str | None = None

    def interval(self, level: float = LEVEL) -> Floats:
        """Return central intervals that hold `level` of each, shape (k, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        return np.clip(normal_intervals(self.mean, self.sd, level), *self.limits)

    def summary(self, level: float = LEVEL) -> Summary:
        """Return a table of means, standard deviations and intervals.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        rows = tuple(
            (name, f"{mean:.5g}", f"{sd:.3g}", f"{low:.5g}", f"{high:.5g}")
            for name, mean, sd, (low, high) in zip(
                self.names, self.mean, self.sd, self.interval(level), strict=True
            )
        )
        ends = (f"quantile {0.5 - level / 2.0:.4g}", f"quantile {0.5 + level / 2.0:.4g}")
        facts = () if self.caution is None else (("Caution", self.caution),)
        return Summary(self.title, ("", "mean", "sd", *ends), rows, facts)

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def chi_square_tail(statistic: float, degrees: int) -> float:
    """Return the probability that a chi-square of so many degrees of freedom is larger.

    By the finite sums of Abramowitz and Stegun, 26.4.4 and 26.4.5.
    """
    half = max(statistic, 0.0) / 2.0
    if half == 0.0:
        return 1.0
    first = 0.5 if degrees % 2 else 0.0
    powers = first + np.arange(degrees // 2)
    terms = [each * math.log(half) - half - math.lgamma(each + 1.0) for each in powers.tolist()]
    tail = math.erfc(math.sqrt(half)) if degrees % 2 else 0.0
    return min(tail + math.fsum(map(math.exp, terms)), 1.0)
