"""What targets are expected to be, by family: means, and residuals that are weighted and cut.

A sum of scores at a public point has residuals v (y - m) that are cut to +-c. What cutting does to
their mean follows from the family, exactly, so no interval needs an allowance for it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.interpolate import RectBivariateSpline
from scipy.special import betainc, gammainc, ndtr

from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.scores import LARGEST_PREDICTOR, Family, mean_of, weight_of
from shoal_studies.posteriors.base import normal_density

_FARTHEST: Final = 13.0  # of a logarithm of a mean from that of most rows, where tables end
NEAR: Final = 3.0  # times as large or small as another dispersion
_TABLE: Final = (24, 60)  # points of a table: at the point asked, and at coefficients


@dataclass(frozen=True)
class Residuals:
    """About what residuals are taken, and how they are weighted and cut.

    `means` and `weights`, shapes (s,). Weighted residuals beyond +-`cut` are cut to it. Targets
    themselves are cut to the public bounds `low` and `high`.
    """

    means: Floats
    weights: Floats
    cut: float
    low: float
    high: float

    @property
    def edges(self) -> tuple[Floats, Floats]:
        """From where to where targets are not cut, shapes (s,).

        Both are the end of the residuals' reach that is nearer to the bounds, if these are beyond.
        """
        reach = self.cut / self.weights
        ends = self.means - reach, self.means + reach
        return np.clip(self.low, *ends), np.clip(self.high, *ends)


CutMoments = tuple[Floats, Floats, Floats]
"""Mean and mean square of weighted, cut residuals, and the share that is cut, shapes (s,)."""

_Limited = tuple[Floats, Floats, Floats, Floats]

ResidualsAt = Callable[[Floats], Residuals]
"""Returns residuals for rows with these predictors at the point that was asked, shape (s,)."""

CutMean = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""Returns the mean of rows' weighted, cut residuals and its derivative, shapes (s,), by their
predictors at the point that was asked and at coefficients."""


class TargetFamily(ABC):
    """How targets scatter about their means, by a dispersion."""

    dispersions: Floats
    """Those that are plausible, shape (k,), ascending."""

    def __init__(self, name: Family) -> None:
        """Be the family that a query calls by `name`."""
        self.name = name

    def mean(self, predictors: Floats) -> Floats:
        """Return the means of targets with these predictors."""
        return mean_of(self.name, predictors)

    def link(self, mean: float) -> float:
        """Return the predictor of targets with this mean."""
        return mean

    def weight(self, means: Floats, dispersion: float) -> Floats:
        """Return what residuals about `means` are multiplied by in a query."""
        return weight_of(self.name, means, dispersion)

    @abstractmethod
    def variance(self, means: Floats, dispersion: float) -> Floats:
        """Return the variances of targets with these means."""

    def near(self, dispersion: float, reach: float) -> Floats:
        """Return dispersions up to `reach` times as large or small, as far as they exist."""
        near = dispersion * np.geomspace(1.0 / reach, reach, len(self.dispersions))
        return np.clip(near, self.dispersions[0], self.dispersions[-1])

    def log_prior(self, dispersions: Floats) -> Floats:
        """Return logarithms of prior probabilities: even on a logarithmic scale."""
        return np.zeros(len(dispersions))

    @abstractmethod
    def cut(self, predictors: Floats, residuals: Residuals, dispersion: float) -> CutMoments:
        """Return what is expected of targets with these predictors, shape (s,)."""

    def cut_mean(
        self, asked: Floats, predictors: Floats, residuals_at: ResidualsAt, dispersion: float
    ) -> CutMean:
        """Return the mean as a function, from a table about the predictors given, shapes (s,)."""
        at, of = _spread(asked, 0.3, _TABLE[0]), _spread(predictors, 2.5, _TABLE[1])
        first, second = np.meshgrid(at, of, indexing="ij")
        means, _, _ = self.cut(second.ravel(), residuals_at(first.ravel()), dispersion)
        table = RectBivariateSpline(at, of, means.reshape(first.shape))

        def evaluate(asked: Floats, predictors: Floats) -> tuple[Floats, Floats]:
            within = np.clip(predictors, of[0], of[-1])  # beyond the ends it is a line
            mean, slope = table.ev(asked, within), table.ev(asked, within, dy=1)
            return mean + slope * (predictors - within), slope

        return evaluate


def _spread(predictors: Floats, beyond: float, count: int) -> Floats:
    """Return so many points of a table, ascending, wherever these logarithms of means are.

    They end `beyond` the last of them, but no further than `_FARTHEST` from the middle one, and
    hardly further than queries tell predictors apart.
    """
    middle = np.clip(
        np.median(predictors), _FARTHEST - LARGEST_PREDICTOR, LARGEST_PREDICTOR - _FARTHEST
    )
    ends = np.clip([predictors.min(), predictors.max()], middle - _FARTHEST, middle + _FARTHEST)
    return np.linspace(ends[0] - beyond, ends[1] + beyond, count)


class Numbers(TargetFamily):
    """Numbers, normal about their means; the dispersion is their standard deviation.

    Both are in standard deviations of the target.
    """

    dispersions = np.geomspace(0.02, 3.0, 20)

    def variance(self, means: Floats, dispersion: float) -> Floats:
        return np.full_like(means, dispersion**2)

    def log_prior(self, dispersions: Floats) -> Floats:
        """Even for the standard deviation itself."""
        return np.log(dispersions)

    def cut(self, predictors: Floats, residuals: Residuals, dispersion: float) -> CutMoments:
        limit, away = residuals.cut, predictors - residuals.means
        ends = (-limit - away) / dispersion, (limit - away) / dispersion
        under, upto = ndtr(ends[0]), ndtr(ends[1])
        low, high = map(normal_density, ends)
        kept, beyond = upto - under, limit * (1.0 - upto - under)
        mean = away * kept + dispersion * (low - high) + beyond
        square = (away**2 + dispersion**2) * kept + 2.0 * away * dispersion * (low - high)
        square += dispersion**2 * (ends[0] * low - ends[1] * high) + limit**2 * (1.0 - kept)
        return mean, square, 1.0 - kept

    def cut_mean(
        self, asked: Floats, predictors: Floats, residuals_at: ResidualsAt, dispersion: float
    ) -> CutMean:
        def evaluate(asked: Floats, predictors: Floats) -> tuple[Floats, Floats]:
            mean, _, cut = self.cut(predictors, residuals_at(asked), dispersion)
            return mean, 1.0 - cut

        return evaluate


class Classes(TargetFamily):
    """Two classes: nothing is cut, and nothing scatters more than it must."""

    dispersions = np.ones(1)

    def link(self, mean: float) -> float:
        return math.log(mean / (1.0 - mean))

    def variance(self, means: Floats, dispersion: float) -> Floats:
        return means * (1.0 - means)

    def cut(self, predictors: Floats, residuals: Residuals, dispersion: float) -> CutMoments:
        upper, means = self.mean(predictors), residuals.means
        squares = upper * (1.0 - means) ** 2 + (1.0 - upper) * means**2
        return upper - means, squares, np.zeros_like(upper)

    def cut_mean(
        self, asked: Floats, predictors: Floats, residuals_at: ResidualsAt, dispersion: float
    ) -> CutMean:
        def evaluate(asked: Floats, predictors: Floats) -> tuple[Floats, Floats]:
            upper = self.mean(predictors)
            return upper - residuals_at(asked).means, upper * (1.0 - upper)

        return evaluate


class _OfLogarithms(TargetFamily):
    """Base of families whose means' logarithms are linear, with targets of no upper end."""

    dispersions = np.geomspace(1e-3, 10.0, 13)

    def link(self, mean: float) -> float:
        return math.log(mean)

    def cut(self, predictors: Floats, residuals: Residuals, dispersion: float) -> CutMoments:
        means, (low, high) = self.mean(predictors), residuals.edges
        mean, square, below, beyond = self.limited(means, dispersion, low, high)
        about, weights = residuals.means, residuals.weights
        squares = weights**2 * (square - 2.0 * about * mean + about**2)
        # a query gets targets within their bounds: beyond these it cuts none, or all
        first, last = residuals.low, residuals.high
        below = np.select([low > last, low > first], [1.0, below], 0.0)
        beyond = np.select([high < first, high < last], [1.0, beyond], 0.0)
        return weights * (mean - about), squares, below + beyond

    @abstractmethod
    def limited(self, means: Floats, dispersion: float, low: Floats, high: Floats) -> _Limited:
        """Return mean and mean square of targets cut to `low` and `high`, and shares beyond."""


class Counts(_OfLogarithms):
    """Counts; with dispersion a the variance is m + a m^2, as of Poisson's with gamma means."""

    def variance(self, means: Floats, dispersion: float) -> Floats:
        return means + dispersion * means**2

    def limited(self, means: Floats, dispersion: float, low: Floats, high: Floats) -> _Limited:
        size = 1.0 / dispersion
        chance = size / (size + means)

        def below(count: Floats, size: float) -> Floats:
            found = betainc(size, np.maximum(count, 0.0) + 1.0, chance)
            return np.where(count >= 0.0, found, 0.0)

        def parts(end: Floats) -> tuple[Floats, Floats, Floats]:
            count = np.floor(end)
            first = means * below(count - 1.0, size + 1.0)
            second = means**2 * (1.0 + dispersion) * below(count - 2.0, size + 2.0)
            return below(count, size), first, first + second

        mean, square, _, beyond = _between(parts(low), parts(high), low, high)
        return mean, square, below(np.ceil(low) - 1.0, size), beyond  # ends are not cut


class Positives(_OfLogarithms):
    """Positive numbers, gamma about their means m; with dispersion a the variance is a m^2."""

    def variance(self, means: Floats, dispersion: float) -> Floats:
        return dispersion * means**2

    def limited(self, means: Floats, dispersion: float, low: Floats, high: Floats) -> _Limited:
        shape = 1.0 / dispersion

        def parts(end: Floats) -> tuple[Floats, Floats, Floats]:
            at = np.maximum(end, 0.0) / (means * dispersion)
            first = means * gammainc(shape + 1.0, at)
            second = means**2 * (1.0 + dispersion) * gammainc(shape + 2.0, at)
            return gammainc(shape, at), first, second

        return _between(parts(low), parts(high), low, high)


def _between(
    low_parts: tuple[Floats, Floats, Floats],
    high_parts: tuple[Floats, Floats, Floats],
    low: Floats,
    high: Floats,
) -> _Limited:
    """Return moments of targets cut to `low` and `high`, from partial moments up to both.

    Then the shares below and beyond.
    """
    below, beyond = low_parts[0], 1.0 - high_parts[0]
    mean = high_parts[1] - low_parts[1] + high * beyond + low * below
    square = high_parts[2] - low_parts[2] + high**2 * beyond + low**2 * below
    return mean, square, below, beyond


FAMILIES: Final[dict[str, TargetFamily]] = {
    "normal": Numbers("normal"),
    "logistic": Classes("logistic"),
    "poisson": Counts("poisson"),
    "negative_binomial": Counts("negative_binomial"),
    "gamma": Positives("gamma"),
}
