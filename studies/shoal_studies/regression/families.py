"""What targets are expected to be, by family: means, and residuals that are weighted and cut."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.interpolate import RectBivariateSpline
from scipy.special import betainc, gammainc, ndtr

from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.scores import Family, mean_of, weight_of

_RECURSION: Final = 250.0  # counts up to here are summed one by one
_FARTHEST: Final = 12.0  # of a predictor, where tables end


@dataclass(frozen=True)
class Residuals:
    """About what residuals are taken and how they are cut: `means` and `weights`, shapes (s,).

    Residuals beyond +-`cut` once weighted are cut. Targets themselves lie in `low` to `high`.
    """

    means: Floats
    weights: Floats
    cut: float
    low: float
    high: float


class TargetFamily(ABC):
    """How targets scatter about their mean, by a `dispersion`; immutable."""

    name: Family
    dispersions: Floats
    """Those that are plausible, shape (k,), as likely each."""

    def mean(self, predictors: Floats) -> Floats:
        return mean_of(self.name, predictors)

    def weight(self, means: Floats, dispersion: float) -> Floats:
        return weight_of(self.name, means, dispersion)

    def slope(self, predictors: Floats) -> Floats:
        """Return the derivatives of means by their predictors."""
        return self.mean(predictors)

    @abstractmethod
    def cut(
        self, predictors: Floats, residuals: Residuals, dispersion: float
    ) -> tuple[Floats, Floats, Floats]:
        """Return mean and mean square of weighted, cut residuals, and the share that is cut."""

    def expectation(
        self, there: Floats, predictors: Floats, residuals_of, dispersion: float
    ):
        """Return a function of the predictors at the point and at coefficients: mean and slope.

        `residuals_of` makes `Residuals` of predictors at the point, shape (s,). Tabulated about
        `there`, shape (s,), and `predictors`, shape (s,).
        """
        ends = max(float(there.min()) - 0.3, -_FARTHEST), min(float(there.max()) + 0.3, _FARTHEST)
        points = np.linspace(*ends, 24)
        ends = (
            max(float(predictors.min()) - 1.0, -_FARTHEST),
            min(float(predictors.max()) + 1.0, _FARTHEST),
        )
        at = np.linspace(*ends, 40)
        grid, values = np.meshgrid(points, at, indexing="ij")
        means = self.cut(values.ravel(), residuals_of(grid.ravel()), dispersion)[0]
        table = RectBivariateSpline(points, at, means.reshape(grid.shape))

        def evaluate(there: Floats, predictors: Floats) -> tuple[Floats, Floats]:
            there = np.clip(there, points[0], points[-1])
            predictors = np.clip(predictors, at[0], at[-1])
            return table.ev(there, predictors), table.ev(there, predictors, dy=1)

        return evaluate


class Classes(TargetFamily):
    """Two classes: nothing is cut."""

    name = "logistic"
    dispersions = np.ones(1)

    def slope(self, predictors: Floats) -> Floats:
        means = self.mean(predictors)
        return means * (1.0 - means)

    def cut(self, predictors, residuals, dispersion):
        upper, means = self.mean(predictors), residuals.means
        squares = upper * (1.0 - means) ** 2 + (1.0 - upper) * means**2
        return upper - means, squares, np.zeros_like(upper)

    def expectation(self, there, predictors, residuals_of, dispersion):
        def evaluate(there, predictors):
            return self.mean(predictors) - residuals_of(there).means, self.slope(predictors)

        return evaluate


class Numbers(TargetFamily):
    """A number, normal about its mean; the dispersion is its standard deviation, in spreads."""

    name = "normal"
    dispersions = np.geomspace(0.02, 1.6, 45)

    def slope(self, predictors):
        return np.ones_like(predictors)

    def cut(self, predictors, residuals, dispersion):
        sd, limit = dispersion, residuals.cut
        away = predictors - residuals.means
        below, above = (-limit - away) / sd, (limit - away) / sd
        under, upto = ndtr(below), ndtr(above)
        density = [np.exp(-0.5 * each * each) / np.sqrt(2.0 * np.pi) for each in (below, above)]
        kept = upto - under
        mean = away * kept + sd * (density[0] - density[1]) + limit * (1.0 - upto - under)
        square = (away**2 + sd**2) * kept + 2.0 * away * sd * (density[0] - density[1])
        square += sd**2 * (below * density[0] - above * density[1]) + limit**2 * (1.0 - kept)
        return mean, square, 1.0 - kept

    def expectation(self, there, predictors, residuals_of, dispersion):
        def evaluate(there, predictors):
            mean, _, cut = self.cut(predictors, residuals_of(there), dispersion)
            return mean, 1.0 - cut

        return evaluate


class Counts(TargetFamily):
    """Counts; the dispersion a is that of a gamma mixture: the variance is m + a m^2."""

    dispersions = np.geomspace(1e-3, 10.0, 13)

    def __init__(self, name: Family) -> None:
        self.name = name

    def cut(self, predictors, residuals, dispersion):
        means, (low, high) = self.mean(predictors), _edges(residuals)
        summed = _counted if np.max(high) <= _RECURSION else self._in_parts
        return _weighted(residuals, *summed(means, dispersion, low, high))

    def _in_parts(self, means, dispersion, low, high):
        size = 1.0 / dispersion
        share = size / (size + means)

        def below(count, size):
            return np.where(count >= 0.0, betainc(size, np.maximum(count, 0.0) + 1.0, share), 0.0)

        def parts(end):
            count = np.floor(end)
            first, second = below(count - 1.0, size + 1.0), below(count - 2.0, size + 2.0)
            return (
                below(count, size),
                means * first,
                means**2 * (1.0 + dispersion) * second + means * first,
            )

        return _between(parts(low), parts(high), low, high)


class Positives(TargetFamily):
    """Positive numbers, gamma about their mean m; the variance is the dispersion times m^2."""

    name = "gamma"
    dispersions = np.geomspace(1e-3, 10.0, 13)

    def cut(self, predictors, residuals, dispersion):
        means, (low, high) = self.mean(predictors), _edges(residuals)
        shape = 1.0 / dispersion

        def parts(end):
            at = np.maximum(end, 0.0) / (means * dispersion)
            return (
                gammainc(shape, at),
                means * gammainc(shape + 1.0, at),
                means**2 * (1.0 + dispersion) * gammainc(shape + 2.0, at),
            )

        return _weighted(residuals, *_between(parts(low), parts(high), low, high))


def _edges(residuals: Residuals) -> tuple[Floats, Floats]:
    """Return from where to where targets are not cut, shapes (s,)."""
    reach = residuals.cut / residuals.weights
    return (
        np.maximum(residuals.means - reach, residuals.low),
        np.minimum(residuals.means + reach, residuals.high),
    )


def _weighted(residuals, mean, square, share):
    """Return moments of weighted residuals of those of cut targets."""
    means, weights = residuals.means, residuals.weights
    whole = residuals.means + residuals.cut / weights >= residuals.high
    squares = weights**2 * (square - 2.0 * means * mean + means**2)
    return weights * (mean - means), squares, np.where(whole, 0.0, share)


def _between(low_parts, high_parts, low, high):
    """Return mean and mean square of targets cut to `low` and `high`, and the share cut."""
    below, beyond = low_parts[0], 1.0 - high_parts[0]
    mean = high_parts[1] - low_parts[1] + high * beyond + low * below
    square = high_parts[2] - low_parts[2] + high**2 * beyond + low**2 * below
    return mean, square, beyond + below


def _counted(means, dispersion, low, high):
    """Return the same of counts, summed over 0, 1, ...: each is as likely as a factor before."""
    size = 1.0 / dispersion
    part = means / (size + means)
    chance = np.exp(-size * np.log1p(means * dispersion))
    total, mean, square, inside = (np.zeros_like(means) for _ in range(4))
    for count in range(int(np.ceil(np.max(high))) + 1):
        at = np.clip(count, low, high)
        total += chance
        mean += chance * at
        square += chance * at * at
        inside += chance * ((count >= low) & (count <= high))
        chance = chance * part * ((count + size) / (count + 1.0))
    rest = np.maximum(1.0 - total, 0.0)
    return mean + rest * high, square + rest * high**2, 1.0 - inside


FAMILIES: Final = {
    "normal": Numbers(),
    "logistic": Classes(),
    "poisson": Counts("poisson"),
    "negative_binomial": Counts("negative_binomial"),
    "gamma": Positives(),
}
