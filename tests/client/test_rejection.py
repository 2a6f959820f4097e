"""Trials of the noise sampler, each compared with exact arithmetic on the very same bits.

The comparison is mpmath's, with 400 bits; the product uses `decimal`. Words come from fixed bytes,
so a test that passes passes always.
"""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from shoal_holder.noise import (
    FINE_BITS,
    MARGIN,
    SLOTS,
    FairBits,
    Randomness,
    gaussian_envelope,
    gaussian_weights,
    is_below,
    keep_of,
    point_weights,
    points_envelope,
    poisson_weights,
)
from shoal_holder.noise import _poisson_envelope as poisson_envelope
from shoal_protocol.privacy.mechanisms import LARGEST_LAPLACE_SCALE, LARGEST_SCALE
from tests.world.chance import fixed_bytes

SCALES = (0.05, 0.8, 4.0, 20.5, 1000.5, 2.0**31 + 0.1, 1e12 / 3, 2.0**50)
LAPLACE_SCALES = (*SCALES, LARGEST_LAPLACE_SCALE)
ENVELOPES = [
    *(gaussian_envelope(scale) for scale in (*SCALES, LARGEST_SCALE)),
    *(points_envelope(scale) for scale in LAPLACE_SCALES),
    poisson_envelope(),
]
mpmath.mp.prec = 400


class Words:
    """Hands out the words that a test chose, and fair bits of its choice."""

    def __init__(self, first, second, *, bits=lambda size: bytes(size)):
        self._words = [np.array(first, np.uint64), np.array(second, np.uint64)]
        self.fair_bits = FairBits(bits)

    def words(self, count):
        words = self._words.pop(0)
        assert len(words) == count
        return words


class Recorder:
    """Remembers the words that it passes on."""

    def __init__(self, label):
        self._source = Randomness(fixed_bytes(label))
        self.fair_bits, self.seen = self._source.fair_bits, []

    def words(self, count):
        self.seen.append(self._source.words(count))
        return self.seen[-1]


def named(envelope):
    kinds = (
        ("gaussian", (*SCALES, LARGEST_SCALE)),
        ("points", LAPLACE_SCALES),
    )
    names = [f"{kind}-{scale}" for kind, scales in kinds for scale in scales]
    return [*names, "poisson"][ENVELOPES.index(envelope)]


def number(fraction):
    return mpmath.mpf(fraction.numerator) / mpmath.mpf(fraction.denominator)


def weight(envelope, x):
    a, b = envelope.weights.exact(x)
    return number(a) * mpmath.exp(-number(b))


def chance(envelope, cell, x):
    """a(x), written down anew."""
    width, slots = envelope.widths[cell], envelope.slots[cell]
    return mpmath.mpf(envelope.height) * width * weight(envelope, x) / slots


def inner_cells(envelope):
    return range(len(envelope.starts) - 1)


def last_in(envelope, cell):
    return envelope.starts[cell] + envelope.widths[cell] - 1


@pytest.mark.parametrize("envelope", ENVELOPES, ids=named)
def test_cells_cover_the_integers_and_no_chance_is_above_one(envelope):
    assert sum(envelope.slots) == SLOTS and min(envelope.slots) >= 1
    for cell in inner_cells(envelope):
        assert last_in(envelope, cell) + 1 == envelope.starts[cell + 1]
        assert chance(envelope, cell, envelope.starts[cell]) <= 1
        assert chance(envelope, cell, last_in(envelope, cell)) <= 1
    start, width = envelope.starts[-1], envelope.widths[-1]
    assert 2 * chance(envelope, len(envelope.starts) - 1, start) <= 2.0**-30
    for block in range(5):
        before, after = (weight(envelope, start + width * (block + i)) for i in (0, 1))
        assert after <= before / 2


@pytest.mark.parametrize("envelope", ENVELOPES, ids=named)
def test_an_integer_comes_out_in_exact_proportion_to_its_weight(envelope):
    """Slots of its cell / (SLOTS width) * chance = height w(x) / SLOTS, as rationals times exp."""
    for cell in inner_cells(envelope):
        for x in {envelope.starts[cell], last_in(envelope, cell)}:
            a, b = envelope.chance(cell, x)
            proposed = Fraction(envelope.slots[cell], SLOTS * envelope.widths[cell])
            rational, exponent = envelope.weights.exact(x)
            assert (proposed * a, b) == (Fraction(envelope.height) / SLOTS * rational, exponent)
    tail = len(envelope.starts) - 1
    for block in range(3):
        x = envelope.starts[tail] + block * envelope.widths[tail]
        a, _ = envelope.chance(tail, x, block + 1)
        proposed = Fraction(envelope.slots[tail], SLOTS * envelope.widths[tail] * 2 ** (block + 1))
        assert proposed * a == Fraction(envelope.height) / SLOTS * envelope.weights.exact(x)[0]


@pytest.mark.parametrize("envelope", ENVELOPES, ids=named)
def test_no_trial_ends_otherwise_than_in_exact_arithmetic(envelope):
    randomness, count = Recorder(named(envelope)), 3000
    values, kept, signs = envelope.trials(count, randomness)
    first, second = (words.tolist() for words in randomness.seen)
    cells = np.repeat(np.arange(len(envelope.slots)), envelope.slots)
    for place in range(count):
        cell, uniform = int(cells[first[place] >> FINE_BITS]), first[place] % 2**FINE_BITS
        assert signs[place] == second[place] % 2
        if cell == len(envelope.starts) - 1:
            assert not kept[place]  # a U so small is not among these
            continue
        x = envelope.starts[cell] + (second[place] >> 1) % envelope.widths[cell]
        assert values[place] == x
        bound = chance(envelope, cell, x) * 2**FINE_BITS
        assert kept[place] == (uniform < bound)
        assert not uniform < bound < uniform + 1  # nor is one that its first bits leave open


@pytest.mark.parametrize("envelope", ENVELOPES, ids=named)
@pytest.mark.parametrize("beside", [-60_000, -3, -1, 0, 1, 3, 60_000])
def test_a_uniform_close_to_its_chance_is_decided_exactly(envelope, beside):
    """Floating point is not asked there: the margin is some 65,000 of the smallest steps of U."""
    bits = iter([b"\x00" * 512, b"\xff" * 512] * len(envelope.starts))
    for cell in inner_cells(envelope):
        x = last_in(envelope, cell)
        bound = chance(envelope, cell, x) * 2**FINE_BITS
        uniform = int(mpmath.floor(bound)) + beside
        if not 0 <= uniform < 2**FINE_BITS or bound <= 1:
            continue
        slot = sum(envelope.slots[:cell])
        words = Words([(slot << FINE_BITS) | uniform], [2 * (envelope.widths[cell] - 1)])
        rest = next(bits)
        words.fair_bits = FairBits(lambda size, rest=rest: rest)
        values, kept, _ = envelope.trials(1, words)
        further = int.from_bytes(rest[:8], "little")
        assert values[0] == x
        assert kept[0] == (uniform + (further + 0.5) / 2**64 < bound)


def test_bits_are_taken_until_the_answer_is_certain():
    """U that agrees with its chance for 500 bits, and then is a little less or more."""
    a, b, length = Fraction(3, 4), Fraction(7, 5), 52 + 9 * 64
    with mpmath.workprec(2000):
        whole = int(mpmath.floor(number(a) * mpmath.exp(-number(b)) * 2**length))
    for difference, expected in ((-1, True), (1, False)):
        uniform = whole + difference
        pieces = [uniform >> (length - 52)]
        for end in range(length - 52 - 64, -1, -64):
            pieces.append((uniform >> end) % 2**64)
        taken = iter(pieces[1:])
        assert is_below(pieces[0], 52, (a, b), lambda size, taken=taken: next(taken)) == expected


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 10**30), Fraction(10**9), 10**400])
def test_chances_near_one_and_near_nothing_are_decided(exponent):
    half, ones = 2**51, 2**64 - 1
    b = Fraction(exponent)
    assert is_below(half, 52, (Fraction(1, 4), b), lambda size: ones) is False
    assert is_below(half - 1, 52, (Fraction(1, 2), b), lambda size: ones) is (b == 0)


def test_the_tail_is_reached_by_the_smallest_uniforms_alone_and_has_its_exact_place():
    envelope = gaussian_envelope(20.5)
    slot = SLOTS - 1
    doublings_and_offset = int.from_bytes(b"\x00" * 512, "little") | 0b011 | (5 << 3)
    bits = doublings_and_offset.to_bytes(512, "little")
    values, kept, _ = envelope.trials(1, Words([slot << FINE_BITS], [0], bits=lambda size: bits))
    assert values[0] == envelope.starts[-1] + 2 * envelope.widths[-1] + 5
    assert kept[0]  # all further bits are zero
    values, kept, _ = envelope.trials(1, Words([(slot << FINE_BITS) | 2**22], [0]))
    assert not kept[0]


@pytest.mark.parametrize("envelope", ENVELOPES, ids=named)
def test_floating_point_is_closer_to_the_weights_than_the_margin_grants(envelope):
    chosen = np.random.default_rng(1)
    for cell in inner_cells(envelope):
        x = int(chosen.integers(envelope.starts[cell], last_in(envelope, cell), endpoint=True))
        exact = weight(envelope, x)
        error = abs(mpmath.mpf(float(envelope.weights.approximate(np.array([x]))[0])) - exact)
        assert error <= max(exact * mpmath.mpf(MARGIN) / 2**8, mpmath.mpf(2) ** -100)


def test_of_many_proposals_those_that_are_kept_come_back_in_order():
    count = 20_000
    kept = keep_of(count, points_envelope(100.0), Randomness(fixed_bytes("many")))
    again = Randomness(fixed_bytes("many"))
    pieces = [points_envelope(100.0).trials(n, again) for n in (8192, 8192, count - 2 * 8192)]
    assert np.array_equal(kept, np.concatenate([values[keep] for values, keep, _ in pieces]))


@pytest.mark.parametrize(
    ("weights", "value", "expected"),
    [
        (gaussian_weights(4.0), 6, math.exp(-36 / 32)),
        (point_weights(4.0), 6, math.exp(-6 / 4) / 6),
        (poisson_weights(), 18, 16**2 / 17 / 18),
    ],
    ids=["gaussian", "points", "poisson"],
)
def test_weights_are_what_their_names_say(weights, value, expected):
    a, b = weights.exact(value)
    assert float(a) * math.exp(-b) == pytest.approx(expected)
    assert weights.approximate(np.array([value]))[0] == pytest.approx(expected)
