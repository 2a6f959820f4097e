"""Exact decisions from fixed bytes: no bit used twice, none left out, every bound uniform."""

from collections import Counter

import pytest
from scipy import stats

from shoal_holder.noise import FairBits
from tests.world.chance import fixed_bytes

FALSE_ALARM = 1e-6


def test_no_random_bit_is_used_twice_and_none_is_left_out():
    data = bytes(range(256)) * 4
    chunks = iter([data[:512], data[512:]])
    bits = FairBits(lambda size: next(chunks))
    words = [bits.below(1 << 13) for _ in range(1024 * 8 // 13)]
    whole = int.from_bytes(data, "little")
    assert words == [(whole >> (13 * i)) & 0x1FFF for i in range(len(words))]


def test_bits_chosen_to_hit_the_bound_are_drawn_again():
    # 0xFF.. gives 7, 7, ... for a bound of 7, which three bits can not decide; then 6.
    chunks = iter([b"\xff" * 512, b"\x06" + bytes(511)])
    bits = FairBits(lambda size: next(chunks))
    assert bits.below(1 << 4093) == (1 << 4093) - 1  # three bits are left
    assert bits.below(7) == 6


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 10])
def test_integers_are_uniform_below_every_bound(bound):
    bits = FairBits(fixed_bytes(f"bound {bound}"))
    seen = Counter(bits.below(bound) for _ in range(20_000))
    assert set(seen) == set(range(bound))
    assert bound == 1 or stats.chisquare(list(seen.values())).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 5), (2, 7), (5, 5)])
def test_a_chance_comes_true_as_often_as_it_says(numerator, denominator):
    bits, count = FairBits(fixed_bytes(f"chance {numerator} {denominator}")), 20_000
    times = sum(bits.chance(numerator, denominator) for _ in range(count))
    assert stats.binomtest(times, count, numerator / denominator).pvalue > FALSE_ALARM
