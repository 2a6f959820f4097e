"""Shares of discrete Laplace noise, drawn exactly.

A share is G - G', both negative binomial: G counts the failures before the r-th success, where
failing has probability alpha = exp(-1 / scale) and r = slots / parties. So shares of `parties`
slots sum to a discrete Laplace, P(x) = (1 - alpha) / (1 + alpha) alpha^|x|, exactly.

G is the sum of the points of a Poisson process on 1, 2, 3, ... with intensity r alpha^k / k
(the generating function of G says so). Points are proposed at a **rational** rate and kept with
probabilities that are products of rationals and of exp(-rational), each decided exactly by fair
bits (von Neumann 1951; Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Algorithm 1). No
logarithm is ever taken, so nothing is rounded. Proof: docs/mathematics.md.
"""

import math
from fractions import Fraction
from typing import Final, Protocol

import numpy as np

from shoal_protocol.privacy.mechanisms import LARGEST_LAPLACE_SCALE
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.encoding import Int64Vector

_SATURATION: Final = 1 << 62
_POOL_BYTES: Final = 512


class Lots(Protocol):
    """Exact random decisions, each independent of all others."""

    def below(self, bound: int) -> int:
        """Return an integer that is uniform on 0, ..., bound - 1."""
        ...

    def chance(self, numerator: int, denominator: int) -> bool:
        """Return True with probability numerator / denominator, which is at most 1."""
        ...


class FairBits:
    """Decisions made from random bytes; no bit is used twice."""

    def __init__(self, random_bytes: RandomBytes) -> None:
        self._random_bytes = random_bytes
        self._pool = 0
        self._bits = 0

    def below(self, bound: int) -> int:
        """Return an integer that is uniform on 0, ..., bound - 1."""
        size = (bound - 1).bit_length()
        while (value := self._take(size)) >= bound:  # fewer than half the draws
            pass
        return value

    def chance(self, numerator: int, denominator: int) -> bool:
        """Return True with probability numerator / denominator, which is at most 1."""
        return self.below(denominator) < numerator

    def _take(self, size: int) -> int:
        while self._bits < size:
            fresh = int.from_bytes(self._random_bytes(_POOL_BYTES), "little")
            self._pool |= fresh << self._bits
            self._bits += 8 * _POOL_BYTES
        value = self._pool & ((1 << size) - 1)
        self._pool >>= size
        self._bits -= size
        return value


def laplace_shares(
    *, scale: float, parties: int, slots: int = 1, count: int, random_bytes: RandomBytes
) -> Int64Vector:
    """Draw `count` independent shares, shape (count,), each that of `slots` of `parties` slots.

    Shares of `parties` slots sum to the Laplace; `scale` is its, in lattice units. `random_bytes`
    is the operating system's generator, except where a test fixes it. Takes about
    2 `count` `slots` / `parties` log2(scale) steps.

    Raises:
        ValueError: `scale` is not within (0, 2^54], or a count is not positive.
    """
    if not (math.isfinite(scale) and 0.0 < scale <= LARGEST_LAPLACE_SCALE):
        raise ValueError("a Laplace scale must be positive, finite and at most 2^54")
    if min(parties, slots, count) < 1:
        raise ValueError("counts of parties, slots and noise draws must be positive")
    lots = FairBits(random_bytes)
    exact = Fraction(scale)
    # One process for all shares and both signs; each of its points falls to one of them by lot.
    cells = 2 * count
    totals = [0] * cells
    rate = Fraction(cells * (_levels(exact) + 1) * slots, parties)
    for _ in range(poisson(lots, rate)):
        point = propose(lots, exact)
        if point is not None:
            totals[lots.below(cells)] += point
    shares = [gain - loss for gain, loss in zip(totals[:count], totals[count:], strict=True)]
    return np.array([max(-_SATURATION, min(each, _SATURATION)) for each in shares], np.int64)


def propose(lots: Lots, scale: Fraction) -> int | None:
    """Propose a point k >= 1, kept with probability alpha^k / (k (levels + 1)); else None.

    Level j < levels proposes k uniform on 2^j, ..., 2^(j+1) - 1. The last level goes on for ever,
    in blocks of 2^levels >= scale: the next block each time with probability 1/2.
    """
    levels = _levels(scale)
    level = lots.below(levels + 1)
    size = 1 << level
    block = 0
    if level == levels:
        while lots.chance(1, 2):
            block += 1
    point = size * (1 + (block if level == levels else 0)) + lots.below(size)
    if not lots.chance(size, point):
        return None
    exponent = point / scale
    if level == levels:
        # The block was proposed with probability 2^-(block + 1), which is divided out again.
        if not all(two_over_e(lots) for _ in range(block + 1)):
            return None
        exponent -= block + 1
    return point if exp_minus(lots, exponent) else None


def poisson(lots: Lots, rate: Fraction) -> int:
    """Draw a Poisson number with a rational `rate`, as a sum of ones with rate 1 and a thinned one.

    Rate 1: k is proposed with probability 2^-(k + 1) and kept with 2^k / (2 k!).
    """
    whole, rest = divmod(rate.numerator, rate.denominator)
    number = sum(_poisson_of_one(lots) for _ in range(whole))
    if rest:
        number += sum(lots.chance(rest, rate.denominator) for _ in range(_poisson_of_one(lots)))
    return number


def exp_minus(lots: Lots, exponent: Fraction) -> bool:
    """Return True with probability exp(-exponent), for a rational exponent >= 0."""
    whole, rest = divmod(exponent.numerator, exponent.denominator)
    ones = all(_fails_at_odd(lots, 1, 1, first=1) for _ in range(whole))
    return ones and _fails_at_odd(lots, rest, exponent.denominator, first=1)


def two_over_e(lots: Lots) -> bool:
    """Return True with probability 2/e: like exp(-1), given that the first two trials succeed."""
    return _fails_at_odd(lots, 1, 1, first=3)


def _fails_at_odd(lots: Lots, numerator: int, denominator: int, *, first: int) -> bool:
    """Tell whether trials k = first, first + 1, ... fail first at an odd k.

    Trial k succeeds with probability x / k, x = numerator / denominator <= 1. From k = 1 on the
    answer is yes with probability 1 - x + x^2/2! - ... = exp(-x).
    """
    trial = first
    while lots.chance(numerator, denominator * trial):
        trial += 1
    return trial % 2 == 1


def _poisson_of_one(lots: Lots) -> int:
    while True:
        number = 0
        while lots.chance(1, 2):
            number += 1
        if lots.chance(1 << number, 2 * math.factorial(number)):
            return number


def _levels(scale: Fraction) -> int:
    """Return the smallest number of levels with 2^levels >= scale."""
    return (math.ceil(scale) - 1).bit_length()
