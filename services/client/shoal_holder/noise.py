"""Draws an answer's noise on the integers, exactly; no floating-point noise is ever drawn.

In reading order: decisions from fair bits; exact draws by rejection; discrete Gaussian noise; and
shares of discrete Laplace noise, of which one party's own is the whole. Proofs:
docs/mathematics.md, propositions 6.1 and 6.2.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cache, lru_cache
from typing import Final

import numpy as np
from nacl.utils import random as system_random
from numpy.typing import NDArray

from shoal_protocol.privacy.mechanisms import (
    LARGEST_LAPLACE_SCALE,
    LARGEST_SCALE,
    GaussianPart,
    LaplacePart,
    NoisePart,
)
from shoal_protocol.sharing.shares import SEED_BYTES, RandomBytes, key_stream, read_words
from shoal_protocol.wire.encoding import Int64Vector, Uint64Vector

_POOL_BYTES: Final = 512


class FairBits:
    """Decisions made from random bytes, each independent of all others."""

    def __init__(self, random_bytes: RandomBytes) -> None:
        self._random_bytes = random_bytes
        self._pool = 0
        self._bits = 0

    def take(self, size: int) -> int:
        """Return an integer of `size` fair bits."""
        while self._bits < size:
            fresh = int.from_bytes(self._random_bytes(_POOL_BYTES), "little")
            self._pool |= fresh << self._bits
            self._bits += 8 * _POOL_BYTES
        value = self._pool & ((1 << size) - 1)
        self._pool >>= size
        self._bits -= size
        return value

    def below(self, bound: int) -> int:
        """Return an integer that is uniform on 0, ..., bound - 1."""
        size = (bound - 1).bit_length()
        while (value := self.take(size)) >= bound:  # fewer than half the draws
            pass
        return value

    def chance(self, numerator: int, denominator: int) -> bool:
        """Return True with probability numerator / denominator, which is at most 1."""
        return self.below(denominator) < numerator


# Exact draws by rejection (von Neumann 1951)
#
# Integers are drawn with probabilities proportional to given weights, many at once. A trial
# proposes an integer x >= 0 and keeps it or not. Cells cover the integers; 12 bits choose a cell,
# and x is uniform within it. x is kept if U, uniform on [0, 1), is below its chance, which makes up
# for the difference between cell and weight. NumPy computes chances with rounding, so a U within
# 2^-36 of its chance, relatively, is undecided: it gets more bits, and is compared in exact
# arithmetic. So no rounding enters the law.
#
# Each trial takes 128 bits and the same steps. How many trials a draw needs tells nothing of what
# is kept, as every trial is independent of all others.

SLOTS: Final = 1 << 12
"""How many equally likely slots the cells share."""

MARGIN: Final = 2.0**-36
"""Relative error that a chance is granted: a million times what NumPy's arithmetic makes of it."""

FINE_BITS: Final = 52
"""How many bits of U a trial begins with: as many as a float holds exactly."""

_STREAM_NAME: Final = b"shoal noise "
_CHUNK: Final = 1 << 13  # trials at once: their arrays stay in a core's own memory


@dataclass(frozen=True)
class Weights:
    """w(x) > 0 for every x that an envelope covers."""

    approximate: Callable[[Int64Vector], NDArray[np.float64]]
    """Returns w of each, within 2^-38 of it relatively, or within 2^-100 of it."""
    exact: Callable[[int], tuple[Fraction, Fraction]]
    """Returns (a, b) with w(value) = a exp(-b)."""


class Randomness:
    """ChaCha20's key stream under a seed of its own: words for trials, bits for rare decisions."""

    def __init__(self, random_bytes: RandomBytes) -> None:
        stream = key_stream(random_bytes(SEED_BYTES), _STREAM_NAME)
        self._stream = stream
        self.fair_bits = FairBits(lambda size: stream.update(bytes(size)))

    def words(self, count: int) -> Uint64Vector:
        """Return fresh words of 64 bits, shape (count,)."""
        return read_words(self._stream, count)


class Envelope:
    """Cells over the integers from the first cell's start on, and how likely each is proposed.

    The last one is the tail's first block: blocks of its width follow for ever, each half as likely
    as the one before. A U that could keep something there is rarer than 2^-30.
    """

    def __init__(self, weights: Weights, starts: Sequence[int], widths: Sequence[int]) -> None:
        """Share the slots out: of cell j at least height * width_j * (largest weight in j).

        Cells follow each other; widths are powers of two. Within a cell no weight is above that of
        its start, and from the tail's start on w(x + width) <= w(x) / 2.
        """
        self.weights, self.starts, self.widths = weights, list(starts), list(widths)
        first = np.array(starts, np.int64)
        masses = weights.approximate(first) * np.array(widths, np.float64)
        cells = len(starts) - 1
        # rounded up, all of them fit, and one is left for the tail
        self.height = float((SLOTS - 2 - cells) / masses[:-1].sum())
        slots = np.ceil(masses[:-1] * self.height * (1.0 + MARGIN)).astype(np.int64)
        self.slots = [*map(int, slots), SLOTS - int(slots.sum())]
        self._cells = np.repeat(np.arange(cells + 1), self.slots)
        self._starts = first.astype(np.uint64)
        self._masks = (np.array(widths, np.int64) - 1).astype(np.uint64)
        self._masks[-1] = 0
        # Chances in units of the last bit of U, less and more by the margin. The tail's first
        # weight stands for all of it: the exact decision takes the place within it.
        factors = self.height * 2.0**FINE_BITS * np.array(widths) / np.array(self.slots)
        self._least, self._most = factors * (1.0 - MARGIN), factors * (1.0 + MARGIN)
        self._least[-1], self._most[-1] = 0.0, 2.0 * self._most[-1]

    def trials(
        self, count: int, randomness: Randomness
    ) -> tuple[Int64Vector, NDArray[np.bool_], NDArray[np.bool_]]:
        """Return what `count` trials propose, whether each is kept, and a fair bit of each.

        x is proposed and kept with probability height w(x) / SLOTS. An x beyond 2^63 is reduced
        modulo 2^64, as every sum of shares is.
        """
        first, second = randomness.words(count), randomness.words(count)
        cells = self._cells[first >> np.uint64(FINE_BITS)]
        uniform = (first & np.uint64((1 << FINE_BITS) - 1)).astype(np.float64)
        offsets = (second >> np.uint64(1)) & self._masks[cells]
        values = (self._starts[cells] + offsets).view(np.int64)
        chances = self.weights.approximate(values)
        kept = uniform + 1.0 <= chances * self._least[cells]
        undecided = (uniform <= chances * self._most[cells] + 1.0) & ~kept
        for place in map(int, np.flatnonzero(undecided)):
            x, chance = self._exactly(int(cells[place]), int(values[place]), randomness.fair_bits)
            values[place] = (x + 2**63) % 2**64 - 2**63
            kept[place] = is_below(
                int(uniform[place]), FINE_BITS, chance, randomness.fair_bits.take
            )
        return values, kept, (second & np.uint64(1)).astype(np.bool_)

    def _exactly(
        self, cell: int, x: int, fair_bits: FairBits
    ) -> tuple[int, tuple[Fraction, Fraction]]:
        """Return which x was proposed, and (a, b): the chance a exp(-b) that it is kept."""
        doublings = 0
        if cell == len(self.starts) - 1:
            while fair_bits.take(1):
                doublings += 1
            block = self.widths[cell]
            x = self.starts[cell] + doublings * block + fair_bits.below(block)
            doublings += 1
        return x, self.chance(cell, x, doublings)

    def chance(self, cell: int, x: int, doublings: int = 0) -> tuple[Fraction, Fraction]:
        """Return (a, b): x, proposed in this cell, is kept with probability a exp(-b).

        In the tail's block i = 0, 1, ... `doublings` is i + 1.
        """
        factor = Fraction(self.height) * self.widths[cell] * 2**doublings / self.slots[cell]
        a, b = self.weights.exact(x)
        return factor * a, b


def is_below(
    uniform: int, bits: int, chance: tuple[Fraction, Fraction], take: Callable[[int], int]
) -> bool:
    """Tell whether U < a exp(-b), where (a, b) = `chance` and U's first `bits` are `uniform`.

    More bits are taken until the answer is certain.
    """
    while True:
        least, most = _bounds(*chance, bits=bits)
        if uniform + 1 <= least:
            return True
        if uniform >= most:
            return False
        uniform, bits = (uniform << 64) | take(64), bits + 64


def _bounds(a: Fraction, b: Fraction, *, bits: int) -> tuple[Fraction, Fraction]:
    """Return numbers that a exp(-b) 2^bits lies between, closer to each other with more bits."""
    if b == 0:
        return a * 2**bits, a * 2**bits
    if b > 2 * bits:  # exp(-b) < 2^-(2 bits)
        return Fraction(0), a * 2**bits / 4**bits
    digits = bits // 3 + 25
    down, up = (
        Context(prec=digits, rounding=rounding, Emin=MIN_EMIN, Emax=MAX_EMAX)
        for rounding in (ROUND_FLOOR, ROUND_CEILING)
    )
    numerator, denominator = Decimal(b.numerator), Decimal(b.denominator)
    # Decimal's exp is correctly rounded to the nearest: its neighbours bound the true value.
    least = down.next_minus(down.exp(up.divide(numerator, denominator).copy_negate()))
    most = up.next_plus(up.exp(down.divide(numerator, denominator).copy_negate()))
    return a * Fraction(least) * 2**bits, a * Fraction(most) * 2**bits


def keep_of(proposed: int, envelope: Envelope, randomness: Randomness) -> Int64Vector:
    """Return what is kept of so many trials."""
    kept = [np.zeros(0, np.int64)]
    while proposed > 0:
        count = min(proposed, _CHUNK)
        values, are_kept, _ = envelope.trials(count, randomness)
        kept.append(values[are_kept])
        proposed -= count
    return np.concatenate(kept)


def draw(count: int, envelope: Envelope, randomness: Randomness, *, signed: bool) -> Int64Vector:
    """Draw `count` integers x >= 0 in proportion to the weights; `signed`: of |x|, on both sides.

    How many trials are made depends on how many of them failed, on nothing else.
    """
    drawn: list[Int64Vector] = []
    missing = count
    while missing > 0:
        values, kept, negative = envelope.trials(
            min(missing + missing // 4 + 16, _CHUNK), randomness
        )
        if signed:
            kept &= ~(negative & (values == 0))  # zero would come twice as often
            values = np.where(negative, -values, values)
        drawn.append(values[kept][:missing])
        missing -= len(drawn[-1])
    return np.concatenate(drawn)


def power_of_two(most: float) -> int:
    """Return the largest power of two that is at most `most`, or 1."""
    return 1 << max(0, math.frexp(most)[1] - 1)


# Noise of an answer

NoiseSampler = Callable[[NoisePart, int], Int64Vector]
"""(part, count) -> `count` independent integers of an answer's noise, shape (count,)."""

_FAR_GAUSSIAN: Final = 9
"""How many scales away the tail of Gaussian noise begins: with weight below 2^-46."""

_TAIL_WIDTHS: Final = 8  # a scale at least, in which weights halve


def exact_noise(part: NoisePart, count: int) -> Int64Vector:
    """Draw `count` integers of an answer's noise on a coordinate, from the system's generator.

    Raises:
        ValueError: the scale is too large to draw, or `count` is not positive.
    """
    match part:
        case GaussianPart(scale=scale):
            return discrete_gaussian(scale, count)
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
    _check(scale, LARGEST_SCALE, count)
    return draw(count, gaussian_envelope(scale), Randomness(random_bytes), signed=True)


def _check(scale: float, largest: float, *counts: int) -> None:
    if not (math.isfinite(scale) and 0.0 < scale <= largest):
        raise ValueError(f"a noise scale must be positive, finite and at most {largest:.0f}")
    if min(counts) < 1:
        raise ValueError("counts of parties, slots and noise draws must be positive")


# far away in the smallest scales powers overflow, where the weight is 0
_overflowing_to_zero = np.errstate(over="ignore")


def gaussian_weights(scale: float) -> Weights:
    """Return exp(-x^2 / (2 scale^2))."""
    return Weights(
        approximate=_overflowing_to_zero(lambda values: np.exp(-0.5 * (values / scale) ** 2)),
        exact=lambda value: (Fraction(1), (value / Fraction(scale)) ** 2 / 2),
    )


@lru_cache(maxsize=64)
def gaussian_envelope(scale: float) -> Envelope:
    """Return cells of an eighth to a quarter of the scale."""
    width = power_of_two(scale / 4.0)
    cells = math.ceil(_FAR_GAUSSIAN * scale / width)
    starts = [width * j for j in range(cells + 1)]
    return Envelope(gaussian_weights(scale), starts, [width] * cells + [_TAIL_WIDTHS * width])


# Shares of discrete Laplace noise
#
# A share is G - G', both negative binomial: G counts the failures before the r-th success, where
# failing has probability alpha = exp(-1 / scale) and r = slots / parties. So shares of `parties`
# slots sum to a discrete Laplace, P(x) = (1 - alpha) / (1 + alpha) alpha^|x|, exactly.
#
# G is the sum of the points of a Poisson process on 1, 2, 3, ... with intensity r alpha^k / k
# (the generating function of G says so). Points are proposed at a **rational** rate, and kept by
# rejection.

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
    _check(scale, LARGEST_LAPLACE_SCALE, parties, slots, count)
    randomness = Randomness(random_bytes)
    # One process for all shares and both signs; each of its points falls to one of them by lot.
    cells = 2 * count
    envelope = points_envelope(scale)
    rate = Fraction(cells * slots * SLOTS, parties) / Fraction(envelope.height)
    points = keep_of(poisson(randomness, rate), envelope, randomness)
    totals = np.zeros(cells, np.int64)
    np.add.at(totals, uniform_below(cells, len(points), randomness), points)
    return totals[:count] - totals[count:]


def point_weights(scale: float) -> Weights:
    """Return exp(-k / scale) / k for k >= 1."""
    return Weights(
        approximate=_overflowing_to_zero(lambda values: np.exp(-(values / scale)) / values),
        exact=lambda value: (Fraction(1, value), value / Fraction(scale)),
    )


def poisson_weights() -> Weights:
    """Return 16^k / k!, in units of the largest."""
    table = np.array([float(_poisson_weight(k)) for k in range(_LARGEST_NUMBER + 1)])
    return Weights(
        approximate=lambda values: table[values],
        exact=lambda value: (_poisson_weight(value), Fraction(0)),
    )


@lru_cache(maxsize=64)
def points_envelope(scale: float) -> Envelope:
    """Return cells of widths 1, 2, 4, ... up to the scale, and then blocks of the next width."""
    levels = (math.ceil(scale) - 1).bit_length()
    widths = [1 << level for level in range(levels)]
    blocks = math.ceil(_FAR * scale / 2**levels) + 1
    return Envelope(
        point_weights(scale),
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
    return Envelope(poisson_weights(), list(numbers), [1] * len(numbers))


def _poisson_weight(number: int) -> Fraction:
    return Fraction(_MEAN**number * math.factorial(_MEAN), _MEAN**_MEAN * math.factorial(number))
