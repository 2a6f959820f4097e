"""Laplace shares: the exact law by enumeration, by another exact method, and by counting draws.

Draws come from fixed bytes, so a test that passes passes always; had the bytes been fresh, each
chi-square test would fail by chance once in a million runs.
"""

import inspect
import math
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shoal_holder import negative_binomial
from shoal_holder.negative_binomial import (
    FairBits,
    exp_minus,
    laplace_shares,
    poisson,
    propose,
    two_over_e,
)
from shoal_protocol.privacy.mechanisms import LARGEST_LAPLACE_SCALE
from tests.world.chance import fixed_bytes

FALSE_ALARM = 1e-6


class Enumeration:
    """Answers by a script, and asks for the next answer where the script ends."""

    def __init__(self, script):
        self._script = iter(script)
        self.mass = Fraction(1)

    def _answer(self, choices):
        answer = next(self._script, None)
        if answer is None:
            raise Branch(choices)
        self.mass *= choices[answer]
        return answer

    def below(self, bound):
        return self._answer([Fraction(1, bound)] * bound)

    def chance(self, numerator, denominator):
        yes = Fraction(numerator, denominator)
        assert 0 <= yes <= 1
        return bool(self._answer([1 - yes, yes]))


class Branch(Exception):
    def __init__(self, choices):
        self.choices = choices


def law(draw, *, smallest):
    """Return the exact law of `draw(lots)`: {outcome: mass found}, and the mass not followed up.

    Every sequence of decisions is followed until its probability is below `smallest`.
    """
    masses, unresolved = defaultdict(Fraction), Fraction(0)
    scripts = [()]
    while scripts:
        script = scripts.pop()
        lots = Enumeration(script)
        try:
            outcome = draw(lots)
        except Branch as branch:
            if lots.mass < smallest:
                unresolved += lots.mass
            else:
                scripts += [(*script, i) for i, p in enumerate(branch.choices) if p]
        else:
            masses[outcome] += lots.mass
    return masses, float(unresolved)


def geometric(scale):
    """alpha^0, alpha^1, ..., far enough."""
    return np.exp(-np.arange(2000) / scale)


def negative_binomial_law(scale, parties):
    """P(G = g) for g = 0, 1, ...: scipy's, whose success is what ends a run of failures."""
    return stats.nbinom.pmf(np.arange(2000), 1.0 / parties, -math.expm1(-1.0 / scale))


def urn_law(scale, parties, largest):
    """P(G = g), g <= largest, by Polya's urn: a geometric total, dealt out one by one."""
    alpha = math.exp(-1.0 / scale)
    dealt = {0: 1.0}  # of `total` ones this share has s
    found = np.zeros(largest + 1)
    for total in range(3000):
        for mine, chance in dealt.items():
            if mine <= largest:
                found[mine] += (1.0 - alpha) * alpha**total * chance
        after = defaultdict(float)
        for mine, chance in dealt.items():
            success = (1 + parties * mine) / (parties * (1 + total))
            after[min(mine + 1, largest + 1)] += chance * success
            after[mine] += chance * (1.0 - success)
        dealt = after
        if alpha**total < 1e-16:
            break
    return found


def difference_law(one):
    """P(G - G' = x), x from -1999 to 1999."""
    return np.convolve(one, one[::-1])


def chi_square(draws, expected, reach):
    """Return the p-value of `draws` against `expected` masses of -reach .. reach, tails lumped."""
    centre = len(expected) // 2
    inner = expected[centre - reach : centre + reach + 1].copy()
    inner[0] += expected[: centre - reach].sum()
    inner[-1] += expected[centre + reach + 1 :].sum()
    seen = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)
    assert (inner * len(draws)).min() > 5.0
    return stats.chisquare(seen, inner / inner.sum() * len(draws)).pvalue


@pytest.mark.parametrize("exponent", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(7, 3)])
def test_exp_minus_is_exactly_the_exponential(exponent):
    masses, unresolved = law(lambda lots: exp_minus(lots, exponent), smallest=1e-5)
    assert unresolved < 1e-3
    assert float(masses[True]) <= math.exp(-exponent) <= float(masses[True]) + unresolved + 1e-15


def test_two_over_e_is_exactly_that():
    masses, unresolved = law(two_over_e, smallest=1e-7)
    assert unresolved < 1e-5
    assert float(masses[True]) <= 2.0 / math.e <= float(masses[True]) + unresolved


@pytest.mark.parametrize("rate", [Fraction(1), Fraction(1, 3)])
def test_the_poisson_number_is_exactly_poisson(rate):
    masses, unresolved = law(lambda lots: poisson(lots, rate), smallest=1e-5)
    assert unresolved < 0.02
    for number in range(5):
        found = float(masses[number])
        assert found <= stats.poisson.pmf(number, float(rate)) <= found + unresolved


def test_a_poisson_number_of_a_larger_rate_is_poisson_too():
    bits = FairBits(fixed_bytes("poisson"))
    draws = np.array([poisson(bits, Fraction(7, 2)) for _ in range(10_000)])
    masses = stats.poisson.pmf(np.arange(10), 3.5)
    expected = np.append(masses, 1.0 - masses.sum()) * len(draws)
    seen = np.bincount(np.minimum(draws, 10), minlength=11)
    assert stats.chisquare(seen, expected).pvalue > FALSE_ALARM


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(3, 2), Fraction(7, 2)])
def test_points_are_proposed_in_exact_proportion_to_the_log_series(scale):
    levels = (math.ceil(scale) - 1).bit_length()
    masses, unresolved = law(lambda lots: propose(lots, scale), smallest=3e-6)
    assert unresolved < 0.02
    for point in range(1, 9):
        exact = math.exp(-point / scale) / (point * (levels + 1))
        found = float(masses[point])
        assert found <= exact * (1 + 1e-12) and exact <= found + unresolved


@pytest.mark.parametrize(("scale", "parties"), [(0.4, 2), (3.0, 1), (3.0, 7), (20.0, 3)])
def test_the_log_series_adds_up_to_what_polyas_urn_deals_out(scale, parties):
    # Panjer's recursion: g P(g) = sum_k k intensity(k) P(g - k), intensity = alpha^k / (k parties).
    largest = 40
    alpha = math.exp(-1.0 / scale)
    compound = [(1.0 - alpha) ** (1.0 / parties)]
    for g in range(1, largest + 1):
        terms = (alpha**k / parties * compound[g - k] for k in range(1, g + 1))
        compound.append(sum(terms) / g)
    np.testing.assert_allclose(compound, urn_law(scale, parties, largest), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(
        compound, negative_binomial_law(scale, parties)[: largest + 1], rtol=1e-9, atol=1e-15
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scale", "parties", "reach"),
    [(0.3, 1, 2), (0.7, 3, 2), (1.0, 1, 5), (4.0, 10, 8), (13.7, 2, 40), (100.0, 50, 80)],
)
def test_a_share_is_the_difference_of_two_negative_binomials(scale, parties, reach):
    draws = laplace_shares(
        scale=scale, parties=parties, count=60_000, random_bytes=fixed_bytes("share")
    )
    expected = difference_law(negative_binomial_law(scale, parties))
    assert chi_square(draws, expected, reach) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("parties", [1, 2, 11])
def test_as_many_shares_as_parties_sum_to_the_discrete_laplace(parties):
    scale, sums = 6.5, 20_000
    shares = laplace_shares(
        scale=scale, parties=parties, count=parties * sums, random_bytes=fixed_bytes("sum")
    )
    one_sided = geometric(scale)
    exact = np.concatenate([one_sided[:0:-1], one_sided]) * math.tanh(0.5 / scale)
    assert exact.sum() == pytest.approx(1.0)  # (1 - alpha) / (1 + alpha) = tanh(1 / (2 scale))
    assert chi_square(shares.reshape(parties, sums).sum(axis=0), exact, 30) > FALSE_ALARM


@pytest.mark.slow
def test_shares_beyond_the_parties_only_add_independent_noise():
    # The law of the sum of 5 + 3 shares is the Laplace's, convolved with that of 3 more shares.
    scale, parties, extra, sums = 6.5, 5, 3, 20_000
    shares = laplace_shares(
        scale=scale,
        parties=parties,
        count=(parties + extra) * sums,
        random_bytes=fixed_bytes("extra"),
    )
    ones = np.arange(2000)
    total = stats.nbinom.pmf(ones, (parties + extra) / parties, -math.expm1(-1.0 / scale))
    draws = shares.reshape(parties + extra, sums).sum(axis=0)
    assert chi_square(draws, difference_law(total), 40) > FALSE_ALARM


@pytest.mark.slow
def test_draws_of_one_call_are_independent_of_each_other():
    # Correlation of neighbours, 1 / sqrt(n) if there is none: five standard errors.
    draws = laplace_shares(
        scale=50.0, parties=4, count=40_000, random_bytes=fixed_bytes("pairs")
    ).astype(float)
    correlation = np.corrcoef(draws[::2], draws[1::2])[0, 1]
    assert abs(correlation) < 5.0 / math.sqrt(20_000)


def test_a_scale_as_large_as_real_rounds_have_gives_the_right_spread():
    # 1 000 clients with 66 coordinates, as one site draws them for a matrix of eleven columns.
    scale, clients, dimension = 2.0**40, 1000, 66
    shares = laplace_shares(
        scale=scale,
        parties=clients,
        count=clients * dimension,
        random_bytes=fixed_bytes("site"),
    )
    sums = shares.reshape(clients, dimension).sum(axis=0) / scale
    # |X| / scale is exponential: the sum of 66 is a gamma.
    statistic = np.abs(sums).sum()
    assert FALSE_ALARM < stats.gamma.cdf(statistic, dimension) < 1.0 - FALSE_ALARM


def test_nothing_but_the_given_bytes_decides_a_draw():
    settings = {"scale": 1000.5, "parties": 3, "count": 200}
    one, same, other = (
        laplace_shares(random_bytes=fixed_bytes(label), **settings)
        for label in ("one", "one", "other")
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    source = inspect.getsource(negative_binomial)
    assert not any(word in source for word in ("np.random", "import random", "secrets", "mpmath"))


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


def test_the_largest_scale_stays_within_64_bits():
    draws = laplace_shares(
        scale=LARGEST_LAPLACE_SCALE, parties=1, count=500, random_bytes=fixed_bytes("large")
    )
    assert 2**53 < np.abs(draws.astype(float)).mean() < 2**55
    assert np.abs(draws).max() < 2**62


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0 * LARGEST_LAPLACE_SCALE])
def test_a_scale_that_is_no_scale_or_reaches_the_end_of_64_bits_is_refused(scale):
    with pytest.raises(ValueError, match="scale"):
        laplace_shares(scale=scale, parties=1, count=1, random_bytes=fixed_bytes("never"))


@pytest.mark.parametrize(("parties", "count"), [(0, 1), (-1, 1), (1, 0)])
def test_counts_that_are_not_positive_are_refused(parties, count):
    with pytest.raises(ValueError, match="positive"):
        laplace_shares(scale=4.0, parties=parties, count=count, random_bytes=fixed_bytes("never"))
