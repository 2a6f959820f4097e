"""Draws an answer's noise on the integers, exactly; no floating-point noise is ever drawn."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from nacl.utils import random as system_random
from numpy.typing import NDArray

from shoal_holder.negative_binomial import laplace_shares
from shoal_holder.rejection import Envelope, Randomness, draw, power_of_two
from shoal_protocol.privacy.mechanisms import (
    LARGEST_LAPLACE_SCALE,
    LARGEST_SCALE,
    GaussianPart,
    LaplacePart,
    NoisePart,
)
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.encoding import Int64Vector

NoiseSampler = Callable[[NoisePart, int], Int64Vector]
"""(part, count) -> `count` independent integers of an answer's noise, shape (count,)."""

_FAR_GAUSSIAN, _FAR_LAPLACE = 9, 32
"""How many scales away the tail begins: with weight below 2^-46 either way."""

_TAIL_WIDTHS: Final = 8  # a scale at least, in which weights halve


def exact_noise(part: NoisePart, count: int) -> Int64Vector:
    """Draw `count` integers of an answer's noise on a coordinate, from the system's generator.

    Raises:
        ValueError: the scale is too large to draw, or `count` is not positive.
    """
    match part:
        case GaussianPart(scale=scale):
            return discrete_gaussian(scale, count)
        case LaplacePart(scale=scale, parties=parties, slots=slots) if slots == parties:
            return discrete_laplace(scale, count)
        case LaplacePart(scale=scale, parties=parties, slots=slots):
            return laplace_shares(
                scale=scale,
                parties=parties,
                slots=slots,
                count=count,
                random_bytes=system_random,
            )


def discrete_gaussian(
    scale: float, count: int, *, random_bytes: RandomBytes = system_random
) -> Int64Vector:
    """Draw `count` integers, each x with probability proportional to exp(-x^2 / (2 scale^2)).

    Raises:
        ValueError: `scale` is not within (0, 2^56], or `count` is not positive.
    """
    if not (math.isfinite(scale) and 0.0 < scale <= LARGEST_SCALE):
        raise ValueError("a noise scale must be positive, finite and at most 2^56")
    if count < 1:
        raise ValueError("a count of noise draws must be positive")
    return draw(count, gaussian_envelope(scale), Randomness(random_bytes), signed=True)


def discrete_laplace(
    scale: float, count: int, *, random_bytes: RandomBytes = system_random
) -> Int64Vector:
    """Draw `count` integers, each x with probability proportional to exp(-|x| / scale).

    Raises:
        ValueError: `scale` is not within (0, 2^54], or `count` is not positive.
    """
    if not (math.isfinite(scale) and 0.0 < scale <= LARGEST_LAPLACE_SCALE):
        raise ValueError("a scale of Laplace noise must be positive, finite and at most 2^54")
    if count < 1:
        raise ValueError("a count of noise draws must be positive")
    return draw(count, laplace_envelope(scale), Randomness(random_bytes), signed=True)


@dataclass(frozen=True)
class GaussianWeights:
    """exp(-x^2 / (2 scale^2))."""

    scale: float

    def approximate(self, values: Int64Vector) -> NDArray[np.float64]:
        """Return the weight of each."""
        with np.errstate(over="ignore"):  # far away in the smallest scales: the weight is 0
            standard = values / self.scale
            return np.exp(-0.5 * standard * standard)

    def exact(self, value: int) -> tuple[Fraction, Fraction]:
        """Return (a, b) with weight a exp(-b)."""
        return Fraction(1), (value / Fraction(self.scale)) ** 2 / 2


@dataclass(frozen=True)
class LaplaceWeights:
    """exp(-x / scale)."""

    scale: float

    def approximate(self, values: Int64Vector) -> NDArray[np.float64]:
        """Return the weight of each."""
        with np.errstate(over="ignore"):
            return np.exp(-(values / self.scale))

    def exact(self, value: int) -> tuple[Fraction, Fraction]:
        """Return (a, b) with weight a exp(-b)."""
        return Fraction(1), value / Fraction(self.scale)


@lru_cache(maxsize=64)
def gaussian_envelope(scale: float) -> Envelope:
    """Return cells of an eighth to a quarter of the scale."""
    return _even_cells(GaussianWeights(scale), scale, far=_FAR_GAUSSIAN)


@lru_cache(maxsize=64)
def laplace_envelope(scale: float) -> Envelope:
    """Return cells of an eighth to a quarter of the scale."""
    return _even_cells(LaplaceWeights(scale), scale, far=_FAR_LAPLACE)


def _even_cells(weights: GaussianWeights | LaplaceWeights, scale: float, *, far: int) -> Envelope:
    width = power_of_two(scale / 4.0)
    cells = math.ceil(far * scale / width)
    starts = [width * j for j in range(cells + 1)]
    return Envelope(weights, starts, [width] * cells + [_TAIL_WIDTHS * width])
