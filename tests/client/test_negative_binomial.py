"""Laplace shares: their rates, the same law by another exact method, and by counting draws.

Draws come from fixed bytes, so a test that passes passes always; had the bytes been fresh, each
chi-square test would fail by chance once in a million runs.
"""

import inspect
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from shoal_holder import noise
from shoal_holder.noise import (
    SLOTS,
    Randomness,
    laplace_shares,
    points_envelope,
    poisson,
    uniform_below,
)
from shoal_protocol.privacy.mechanisms import LARGEST_LAPLACE_SCALE
from tests.world.chance import fixed_bytes

FALSE_ALARM = 1e-6


def geometric(scale):
    """alpha^0, alpha^1, ..., far enough."""
    return np.exp(-np.arange(2000) / scale)


def negative_binomial_law(scale, parties):
    """P(G = g) for g = 0, 1, ...: scipy's, whose success is what ends a run of failures."""
    return stats.nbinom.pmf(np.arange(2000), 1.0 / parties, -math.expm1(-1.0 / scale))


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


@pytest.mark.parametrize("rate", [Fraction(1, 3), Fraction(7, 2), Fraction(16), Fraction(405, 4)])
def test_the_poisson_number_of_a_rational_rate_is_poisson(rate):
    randomness = Randomness(fixed_bytes(f"poisson {rate}"))
    draws = np.array([poisson(randomness, rate) for _ in range(4000)])
    law = stats.poisson(float(rate))
    low, high = int(law.ppf(0.01)), int(law.ppf(0.99))
    masses = law.pmf(np.arange(low, high + 1))
    masses[0], masses[-1] = law.cdf(low), law.sf(high - 1)
    seen = np.bincount(np.clip(draws, low, high) - low, minlength=len(masses))
    assert stats.chisquare(seen, masses * len(draws)).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("scale", "parties", "slots"), [(0.3, 3, 1), (6.5, 7, 2), (2.0**40, 9, 9)])
def test_points_are_proposed_at_the_rate_that_makes_the_log_series(
    monkeypatch, scale, parties, slots
):
    """A point k is kept at rate * height exp(-k / scale) / (k SLOTS): slots / parties alpha^k / k,
    for each of `count` shares and both signs (tests/client/test_rejection.py has the rest)."""
    rates, count = [], 11
    monkeypatch.setattr(noise, "poisson", lambda _, rate: rates.append(rate) or 0)
    laplace_shares(
        scale=scale, parties=parties, slots=slots, count=count, random_bytes=fixed_bytes("rate")
    )
    kept = rates[0] * Fraction(points_envelope(scale).height) / SLOTS
    assert kept == Fraction(2 * count * slots, parties)


@pytest.mark.parametrize("bound", [1, 2, 7, 1000])
def test_lots_are_uniform_below_every_bound(bound):
    drawn = uniform_below(bound, 50_000, Randomness(fixed_bytes(f"lots {bound}")))
    seen = np.bincount(drawn, minlength=bound)
    assert len(drawn) == 50_000 and len(seen) == bound
    assert bound == 1 or stats.chisquare(seen).pvalue > FALSE_ALARM


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
    source = inspect.getsource(noise)
    assert not any(word in source for word in ("np.random", "\nimport random", "secrets", "mpmath"))


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
