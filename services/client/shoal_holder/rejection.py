"""Draws integers with probabilities proportional to given weights: exactly, many at once.

A trial proposes an integer x >= 0 and keeps it or not (rejection; von Neumann 1951). Cells cover
the integers; one is taken by 12 bits, x evenly within it. x is kept if U, uniform on [0, 1), is
below its chance, which makes up for the difference between cell and weight. NumPy computes chances
with rounding, so a U within 2^-36 of its chance, relatively, is undecided: it gets more bits, and
is compared in exact arithmetic. So no rounding enters the law. Proof: docs/mathematics.md.

Each trial takes 128 bits and the same steps. How many trials a draw needs tells nothing of what is
kept, as every trial is independent of all others.
"""

import math
from collections.abc import Callable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from shoal_holder.fair_bits import FairBits
from shoal_protocol.sharing.shares import SEED_BYTES, RandomBytes, key_stream, read_words
from shoal_protocol.wire.encoding import Int64Vector, Uint64Vector

SLOTS: Final = 1 << 12
"""How many equally likely slots the cells share."""

MARGIN: Final = 2.0**-36
"""Relative error that a chance is granted: a million times what NumPy's arithmetic makes of it."""

FINE_BITS: Final = 52
"""How many bits of U a trial begins with: as many as a float holds exactly."""

_STREAM_NAME: Final = b"shoal noise "
_CHUNK: Final = 1 << 13  # trials at once: their arrays stay in a core's own memory


class Weights(Protocol):
    """w(x) > 0 for every x that an envelope covers."""

    def approximate(self, values: Int64Vector) -> NDArray[np.float64]:
        """Return w of each, within 2^-38 of it relatively, or within 2^-100 of it."""
        ...

    def exact(self, value: int) -> tuple[Fraction, Fraction]:
        """Return (a, b) with w(value) = a exp(-b)."""
        ...


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
