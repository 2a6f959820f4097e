"""Shared code of studies of one round: the law of its noise, and what it tells of one number.

Gaussian shares sum to a Gaussian. Laplace shares, differences of negative binomials of shape
1/parties each, sum to a difference of two of shape `shape` = cohort / parties >= 1: on a lattice as
fine as the queries' that is the variance-gamma law with characteristic function
(1 + b^2 t^2)^-shape, which is Laplace's for shape 1.

The posterior of a single parameter is computed on a grid that is fitted to its mass.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import numpy as np
from numpy.random import PCG64, Generator
from scipy.special import kve, logsumexp, softmax

from shoal_protocol.queries import Mechanism
from shoal_protocol.queries.design import Floats
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.measurements import noisy_count
from shoal_studies.posteriors.forms import encoded

_MOST_SHAPE: Final = 50.0  # above it a sum of Laplace shares is normal to all purposes
_STEP: Final = 0.25  # of ln g in the trapezoidal rule
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
        if self.mechanism == "discrete_gaussian" or self.shape > _MOST_SHAPE:
            return -0.5 * (x / self.sd) ** 2 - math.log(self.sd * math.sqrt(2.0 * math.pi))
        # that of a variance-gamma law, by the Bessel function K of this order
        order = self.shape - 0.5
        nearest = 10.0 ** -min(12.0, 200.0 / (order + 1.0))  # nearer to 0 it would overflow
        y = np.maximum(np.abs(x) / self._scale, nearest)
        norm = self._scale * math.sqrt(math.pi) * math.gamma(self.shape) * 2.0**order
        return np.asarray(order * np.log(y) + np.log(kve(order, y)) - y - math.log(norm))

    def draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
        """Return independent draws, for posterior sampling: no privacy depends on them."""
        if self.mechanism == "discrete_gaussian":
            return np.asarray(self.sd * generator.standard_normal(shape))
        gains, losses = generator.gamma(self.shape, self._scale, (2, *shape))
        return np.asarray(gains - losses)

    def normal_mixture(self) -> tuple[Floats, Floats]:
        """Return weights and variances, shape (m,), of the normals of mean zero that mix to it.

        A variance-gamma variable is normal with variance 2 b^2 g, g gamma distributed: here by the
        trapezoidal rule in ln g.
        """
        if self.mechanism == "discrete_gaussian":
            return np.ones(1), np.array([self.sd**2])
        logarithms = np.arange(_LOWEST, _HIGHEST, _STEP)
        weights = softmax(self.shape * logarithms - np.exp(logarithms))
        kept = weights > 1e-15
        return weights[kept], 2.0 * self._scale**2 * np.exp(logarithms[kept])

    @property
    def _scale(self) -> float:
        return self.sd / math.sqrt(2.0 * self.shape)


LogDensity = Callable[[Floats], Floats]

_SEARCH_POINTS: Final = 129
_SEARCHES: Final = 60
_NEGLIGIBLE: Final = -38.0  # in logarithms, relative to the peak: 3e-17
_POINTS: Final = 801
_VALUES: Final = 2000


def bulk(log_density: LogDensity, low: float, high: float) -> tuple[float, float]:
    """Return an interval outside which a unimodal density on [low, high] is negligible."""
    for _ in range(_SEARCHES):
        points = np.linspace(low, high, _SEARCH_POINTS)
        logs = log_density(points)
        kept = np.flatnonzero(logs > logs.max() + _NEGLIGIBLE)
        first, last = max(kept[0] - 1, 0), min(kept[-1] + 1, _SEARCH_POINTS - 1)
        low, high = float(points[first]), float(points[last])
        if last - first > _SEARCH_POINTS // 2:
            break
    return low, high


def summarise(
    log_density: LogDensity,
    low: float,
    high: float,
    parameter: Callable[[Floats], Floats],
) -> dict[str, Any]:
    """Return the values of a posterior: those that split `parameter`(t)'s density evenly.

    `parameter` increases in t, which has its density on [low, high]. `log_density` need not be
    normalised. Trapezoidal rule on 801 points: for a density that vanishes at both ends its error
    falls faster than any power of their distance.
    """
    points = np.linspace(low, high, _POINTS)
    logs = log_density(points)
    density = np.exp(logs - logs.max())
    steps = (density[1:] + density[:-1]) / 2.0
    cumulative = np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum()
    rising = np.concatenate([[True], np.diff(cumulative) > 0.0])
    levels = (np.arange(_VALUES) + 0.5) / _VALUES
    places = np.interp(levels, cumulative[rising], points[rising])
    return {"values": encoded(parameter(places))}


_NODES: Final = 15


def noise_of(released: ReleasedSum, coordinate: int, unit: float) -> SummedNoise:
    """Return the law of the noise on a coordinate, in units of `unit` lattice steps."""
    return SummedNoise(
        mechanism=released.mechanism,
        sd=float(released.noise_sd[coordinate]) / unit,
        shape=released.surplus,
    )


def generator_for(released: ReleasedSum) -> Generator:
    """Return a generator that the sum alone determines: the same sum gives the same posterior."""
    digest = sha256(released.values.tobytes()).digest()
    return Generator(PCG64(int.from_bytes(digest[:16], "little")))


def record_counts(released: ReleasedSum, *, log_uniform: bool = False) -> tuple[Floats, Floats]:
    """Return how many records there may be, and log probabilities, both shape (m,), m <= 15.

    Their number is seen through noise, and each from none to the most allowed is as likely
    beforehand, or as 1 / (n + 1) with `log_uniform`. A number stands for those around it, up to
    half way to the next.
    """
    seen, sd = noisy_count(released)
    noise = SummedNoise(mechanism=released.mechanism, sd=sd, shape=released.surplus)
    most = released.cohort_size * released.query.records_per_client
    centre = min(max(seen, 0.0), float(most))
    low, high = max(centre - 5.0 * sd, 0.0), min(centre + 5.0 * sd, float(most))
    numbers = np.unique(np.rint(np.linspace(low, high, _NODES)))
    ends = np.concatenate(
        [numbers[:1] - 0.5, (numbers[1:] + numbers[:-1]) / 2.0, numbers[-1:] + 0.5]
    )
    widths = np.diff(np.log(ends + 1.0) if log_uniform else ends)
    logs = noise.log_density(seen - numbers) + np.log(widths)
    return numbers, logs - logsumexp(logs)
