"""The law of a cohort's summed noise on one coordinate.

Gaussian shares sum to a Gaussian. Laplace shares, differences of negative binomials of shape
1/parties each, sum to a difference of two of shape `shape` = cohort / parties >= 1: on a lattice as
fine as the queries' that is the variance-gamma law with characteristic function
(1 + b^2 t^2)^-shape, which is Laplace's for shape 1.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from shoal_learning.families.special import Floats, log_gamma, log_sum_exp
from shoal_protocol.queries import Mechanism

_FARTHEST: Final = 60.0  # scales b: from there on the tail is exp(-|x|/b), to first order
_KNOTS: Final = 3000
_STEP: Final = 0.25  # of ln g in the trapezoidal rules
_LOWEST: Final = -70.0
_HIGHEST: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class SummedNoise:
    """Noise of mean zero and standard deviation `sd`, in the units of the statistic.

    `shape` is cohort / parties, and matters for the Laplace mechanism only.
    """

    mechanism: Mechanism
    sd: float
    shape: float

    @property
    def reach(self) -> float:
        """A distance that the noise passes with probability below 1e-14."""
        if self.mechanism == "discrete_gaussian":
            return 8.0 * self.sd
        return (32.0 + 4.0 * self.shape) * self._scale

    def log_density(self, x: Floats) -> Floats:
        """Return the logarithm of the density at `x`, elementwise."""
        if self.mechanism == "discrete_gaussian":
            return -0.5 * (x / self.sd) ** 2 - math.log(self.sd * math.sqrt(2.0 * math.pi))
        knots, values, _ = _table(self.shape)
        y = np.abs(x) / self._scale
        inside = np.interp(y, knots, values)
        return np.asarray(inside - np.maximum(y - _FARTHEST, 0.0) - math.log(self._scale))

    def slope(self, x: Floats) -> Floats:
        """Return the derivative of `log_density` at `x`, elementwise."""
        if self.mechanism == "discrete_gaussian":
            return np.asarray(-x / self.sd**2)
        knots, _, slopes = _table(self.shape)
        y = np.abs(x) / self._scale
        place = np.clip(np.searchsorted(knots, y, side="right") - 1, 0, len(slopes) - 1)
        inside = np.where(y < _FARTHEST, slopes[place], -1.0)
        return np.asarray(np.sign(x) * inside / self._scale)

    def draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
        """Return independent draws, for posterior sampling: no privacy depends on them."""
        if self.mechanism == "discrete_gaussian":
            return np.asarray(self.sd * generator.standard_normal(shape))
        gains, losses = generator.gamma(self.shape, self._scale, (2, *shape))
        return np.asarray(gains - losses)

    def normal_mixture(self) -> tuple[Floats, Floats]:
        """Return weights and variances, shape (m,), of the normals of mean zero that mix to it.

        A variance-gamma variable is normal with variance 2 b^2 g, g gamma distributed.
        """
        if self.mechanism == "discrete_gaussian":
            return np.ones(1), np.array([self.sd**2])
        logarithms, log_weights = _gamma_rule(self.shape)
        weights = np.exp(log_weights)
        kept = weights > 1e-15
        return weights[kept], 2.0 * self._scale**2 * np.exp(logarithms[kept])

    @property
    def _scale(self) -> float:
        return self.sd / math.sqrt(2.0 * self.shape)


def _gamma_rule(shape: float) -> tuple[Floats, Floats]:
    """Return ln g and log weights of a trapezoidal rule in ln g for the gamma distribution."""
    logarithms = np.arange(_LOWEST, _HIGHEST, _STEP)
    log_weights = shape * logarithms - np.exp(logarithms)
    return logarithms, log_weights - log_sum_exp(log_weights, 0)


@lru_cache(maxsize=64)
def _table(shape: float) -> tuple[Floats, Floats, Floats]:
    """Return knots in scales b, the log density there for b = 1, and the slopes in between."""
    knots = _FARTHEST * np.linspace(0.0, 1.0, _KNOTS) ** 2
    if shape == 1.0:
        values = -knots - math.log(2.0)
    else:
        logarithms = np.arange(_LOWEST, _HIGHEST, _STEP / 2.0)
        variances = 2.0 * np.exp(logarithms)
        terms = (
            shape * logarithms
            - np.exp(logarithms)
            - 0.5 * np.log(2.0 * math.pi * variances)
            + math.log(_STEP / 2.0)
            - float(log_gamma(np.array([shape]))[0])
            - 0.5 * knots[:, None] ** 2 / variances
        )
        values = log_sum_exp(terms, 1)
    return knots, values, np.diff(values) / np.diff(knots)
