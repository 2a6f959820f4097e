"""Shares of discrete Laplace noise, drawn exactly.

A share is G - G', both negative binomial: G counts the failures before the r-th success, where
failing has probability alpha = exp(-1 / scale) and r = slots / parties. So shares of `parties`
slots sum to a discrete Laplace, P(x) = (1 - alpha) / (1 + alpha) alpha^|x|, exactly.

G is the sum of the points of a Poisson process on 1, 2, 3, ... with intensity r alpha^k / k
(the generating function of G says so). Points are proposed at a **rational** rate and kept as
`shoal_holder.rejection` does. Proof: docs/mathematics.md.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_holder.rejection import SLOTS, Envelope, Randomness, draw, keep_of
from shoal_protocol.privacy.mechanisms import LARGEST_LAPLACE_SCALE
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.encoding import Int64Vector

_FAR: Final = 32  # how many scales away the tail of points begins
_MEAN: Final = 16  # of the Poisson numbers that others are made of
_LARGEST_NUMBER: Final = 72  # of these, before the tail: weights then halve with each step


def laplace_shares(
    *, scale: float, parties: int, slots: int = 1, count: int, random_bytes: RandomBytes
) -> Int64Vector:
    """Draw `count` independent shares, shape (count,), each that of `slots` of `parties` slots.

    Shares of `parties` slots sum to the Laplace, modulo 2^64; `scale` is its, in lattice units.
    `random_bytes` is the operating system's generator, except where a test fixes it. Takes about
    2 `count` `slots` / `parties` log2(scale) steps.

    Raises:
        ValueError: `scale` is not within (0, 2^54], or a count is not positive.
    """
    if not (math.isfinite(scale) and 0.0 < scale <= LARGEST_LAPLACE_SCALE):
        raise ValueError("a Laplace scale must be positive, finite and at most 2^54")
    if min(parties, slots, count) < 1:
        raise ValueError("counts of parties, slots and noise draws must be positive")
    randomness = Randomness(random_bytes)
    # One process for all shares and both signs; each of its points falls to one of them by lot.
    cells = 2 * count
    envelope = points_envelope(scale)
    rate = Fraction(cells * slots * SLOTS, parties) / Fraction(envelope.height)
    points = keep_of(poisson(randomness, rate), envelope, randomness)
    totals = np.zeros(cells, np.int64)
    np.add.at(totals, uniform_below(cells, len(points), randomness), points)
    return totals[:count] - totals[count:]


@dataclass(frozen=True)
class PointWeights:
    """exp(-k / scale) / k for k >= 1."""

    scale: float

    def approximate(self, values: Int64Vector) -> NDArray[np.float64]:
        """Return the weight of each."""
        with np.errstate(over="ignore"):
            return np.exp(-(values / self.scale)) / values

    def exact(self, value: int) -> tuple[Fraction, Fraction]:
        """Return (a, b) with weight a exp(-b)."""
        return Fraction(1, value), value / Fraction(self.scale)


@dataclass(frozen=True)
class PoissonWeights:
    """16^k / k!, in units of the largest."""

    def approximate(self, values: Int64Vector) -> NDArray[np.float64]:
        """Return the weight of each."""
        return _poisson_table()[values]

    def exact(self, value: int) -> tuple[Fraction, Fraction]:
        """Return (a, b) with weight a exp(-b)."""
        return _poisson_weight(value), Fraction(0)


@lru_cache(maxsize=64)
def points_envelope(scale: float) -> Envelope:
    """Return cells of widths 1, 2, 4, ... up to the scale, and then blocks of the next width."""
    levels = (math.ceil(scale) - 1).bit_length()
    widths = [1 << level for level in range(levels)]
    blocks = math.ceil(_FAR * scale / 2**levels) + 1
    return Envelope(
        PointWeights(scale),
        [*widths, *(2**levels * (1 + block) for block in range(blocks))],
        [*widths, *(2**levels for _ in range(blocks))],
    )


def poisson(randomness: Randomness, rate: Fraction) -> int:
    """Draw a Poisson number with a rational `rate`: a sum of ones of rate 16, the last thinned."""
    whole, rest = divmod(rate, _MEAN)
    number = int(draw(whole, _poisson_envelope(), randomness, signed=False).sum()) if whole else 0
    if rest:
        share = rest / _MEAN
        others = int(draw(1, _poisson_envelope(), randomness, signed=False)[0])
        chance = randomness.fair_bits.chance
        number += sum(chance(share.numerator, share.denominator) for _ in range(others))
    return number


def uniform_below(bound: int, count: int, randomness: Randomness) -> Int64Vector:
    """Draw `count` integers that are uniform on 0, ..., bound - 1."""
    mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
    drawn = np.zeros(0, np.int64)
    while len(drawn) < count:
        words = (randomness.words(2 * (count - len(drawn)) + 16) & mask).astype(np.int64)
        drawn = np.concatenate([drawn, words[words < bound]])
    return drawn[:count]


@cache
def _poisson_envelope() -> Envelope:
    numbers = range(_LARGEST_NUMBER + 1)
    return Envelope(PoissonWeights(), list(numbers), [1] * len(numbers))


@cache
def _poisson_table() -> NDArray[np.float64]:
    return np.array([float(_poisson_weight(k)) for k in range(_LARGEST_NUMBER + 1)])


def _poisson_weight(number: int) -> Fraction:
    return Fraction(_MEAN**number * math.factorial(_MEAN), _MEAN**_MEAN * math.factorial(number))
