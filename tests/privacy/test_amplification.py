"""The price of hidden participation, against other methods that share no code with it.

Exact integrals for one round and two, plain convolutions for a few, dp_accounting's losses for
many, and a search for neighbours that are easier to tell apart than those that are priced.
"""

import itertools
import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.privacy_accountant import NeighboringRelation
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import norm

from shoal_protocol.accounting import Cap
from shoal_protocol.amplification import (
    LARGEST_MU,
    LARGEST_ROUNDS,
    SLACK,
    hidden_mu,
    hidden_round_mu,
)
from shoal_protocol.curves import gaussian_delta_below, gaussian_epsilon
from shoal_protocol.privacy_losses import PrivacyLosses

# rate 167/3341 of the Abalone experiment, as noise deviation over the sensitivity 2C
DEVIATIONS = (1.22, 3.55, 10.3, 17.6)
EPSILONS = tuple(np.concatenate([[0.0], np.geomspace(1e-3, 6.0, 30)]).tolist())


def loss(x: float, rate: float, reach: float) -> float:
    first = math.log((1 - rate) + rate * math.exp(reach * x - reach**2 / 2))
    return first - math.log((1 - rate) + rate * math.exp(-reach * x - reach**2 / 2))


def place(value: float, rate: float, reach: float) -> float:
    found = brentq(lambda x: loss(x, rate, reach) - value, -60.0, 60.0, xtol=1e-14)
    return float(found)


def mixed_tail(x: float, rate: float, reach: float) -> float:
    return float((1 - rate) * ndtr(-x) + rate * ndtr(reach - x))


def delta_of_one(epsilon: float, rate: float, reach: float) -> float:
    """Return delta of one round exactly: the loss rises with x, so from its epsilon on."""
    x = place(epsilon, rate, reach)
    return mixed_tail(x, rate, reach) - math.exp(epsilon) * mixed_tail(x, rate, -reach)


def delta_of_two(epsilon: float, rate: float, reach: float) -> float:
    """Return delta of two rounds: what is left to the second, averaged over the first's loss."""

    def left(x: float) -> float:
        rest = epsilon - loss(x, rate, reach)
        ahead = delta_of_one(abs(rest), rate, reach)
        if rest < 0:
            ahead = -math.expm1(rest) + math.exp(rest) * ahead
        return float(((1 - rate) * norm.pdf(x) + rate * norm.pdf(x - reach)) * ahead)

    return float(quad(left, -9.0, 9.0 + reach, limit=400, epsabs=1e-13, epsrel=1e-9)[0])


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize(("rate", "mu"), [(0.05, 0.8), (0.3, 2.0), (0.8, 1.0), (0.01, 3.0)])
def test_one_round_and_two_cost_what_exact_integrals_say(
    rate: float, mu: float, rounds: int
) -> None:
    exact: Callable[[float, float, float], float] = (delta_of_one, delta_of_two)[rounds - 1]
    epsilons = EPSILONS[:: 1 if rounds == 1 else 5]
    computed, bounds = PrivacyLosses.of_mirrored_mixtures(rate=rate, reach=mu / 2).composed(
        rounds, knots_per_deviation=50
    )
    total = hidden_mu(rate=rate, mu=mu, rounds=rounds)
    compared = 0
    for epsilon in epsilons:
        true = exact(epsilon, rate, mu / 2)
        assert true <= (SLACK + gaussian_delta_below(epsilon=epsilon, mu=total)) * (1 + 1e-9)
        if true > 1e-11:
            at = np.interp(epsilon, computed, bounds)
            assert true * (1 - 1e-9) <= at <= true * 1.02 + 1e-4 * true
            compared += 1
    assert compared >= 4


@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_a_thousand_rounds_cost_what_dp_accounting_says_of_them(deviation: float) -> None:
    other = pld.from_gaussian_mechanism(
        2.0 * deviation,  # of a sensitivity of 2, which REPLACE_ONE makes of 1
        sampling_prob=0.05,
        value_discretization_interval=1e-4 if deviation < 5 else 2e-6,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    ).self_compose(1000)
    total = hidden_mu(rate=0.05, mu=1 / deviation, rounds=1000)
    for delta in (1e-3, 1e-5, 1e-8):
        theirs = other.get_epsilon_for_delta(delta)
        ours = gaussian_epsilon(mu=total, delta=delta)
        assert 0.9999 * theirs <= ours <= 1.004 * theirs


@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_many_rounds_come_near_the_central_limit(deviation: float) -> None:
    """Bu, Dong, Long and Su (2020, arXiv:1911.11607): mu = q sqrt(T E (p - q)^2 / p_0)."""
    mu = 1 / deviation
    limit = 0.05 * math.sqrt(1000 * 4 * math.sinh(mu**2 / 4))
    assert hidden_mu(rate=0.05, mu=mu, rounds=1000) == pytest.approx(limit, rel=4e-3)


def folded(one: NDArray[np.float64], times: int) -> NDArray[np.float64]:
    total = one
    for _ in range(times - 1):
        total = np.convolve(total, one)
    return total


@pytest.mark.parametrize(("rate", "mu", "rounds"), [(0.05, 1.0, 8), (0.5, 0.5, 20), (0.2, 2.0, 5)])
def test_the_fourier_transforms_lose_nothing_against_plain_convolutions(
    rate: float, mu: float, rounds: int
) -> None:
    one = PrivacyLosses.of_mirrored_mixtures(rate=rate, reach=mu / 2)
    epsilons, deltas = one.composed(rounds, knots_per_deviation=10)
    sums = folded(one.masses, rounds)
    losses = one.step * (np.arange(len(sums)) - len(sums) // 2)
    for epsilon, delta in zip(epsilons.tolist(), deltas.tolist(), strict=True):
        above = losses > epsilon + one.step / 2
        exact = math.fsum((sums[above] * -np.expm1(epsilon - losses[above])).tolist())
        assert delta >= exact * (1 - 1e-9)
        if exact > 1e-24:
            assert delta <= exact * 1.003 + 1e-30


@pytest.mark.parametrize(("rate", "reach"), [(0.05, 0.4), (1e-6, 0.01), (0.7, 3.0), (1.0, 0.5)])
def test_discretised_losses_keep_both_distributions_and_no_delta_falls(
    rate: float, reach: float
) -> None:
    one = PrivacyLosses.of_mirrored_mixtures(rate=rate, reach=reach)
    losses = one.step * (np.arange(len(one.masses)) - len(one.masses) // 2)
    assert math.fsum(one.masses.tolist()) == pytest.approx(1.0, abs=1e-13)
    assert math.fsum((one.masses * np.exp(-losses)).tolist()) == pytest.approx(1.0, abs=1e-13)
    assert (one.masses >= 0.0).all()
    for k in range(0, len(losses) // 2, max(1, len(losses) // 40)):
        epsilon = float(losses[len(losses) // 2 + k]) + one.step / 3
        above = losses > epsilon
        ours = math.fsum((one.masses[above] * -np.expm1(epsilon - losses[above])).tolist())
        assert ours >= delta_of_one(epsilon, rate, reach) - 1e-15


def test_no_neighbours_are_easier_to_tell_apart_than_two_opposite_ones() -> None:
    """Contributions v, v' of norm at most the reach: in the plane, by quadrature.

    With E A = E B = 1 for A = exp(v'x - |v|^2/2) under N(0, I), delta is
    E [(1-q)(1-a) + q A - a q B]_+ with a = e^epsilon, for all epsilon, negative ones too.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / math.sqrt(2 * math.pi)
    x, y = np.meshgrid(nodes, nodes)
    mass = np.outer(weights, weights)

    def delta(first: complex, second: complex, rate: float, epsilon: float) -> float:
        factor = math.exp(epsilon)
        one, other = (np.exp(v.real * x + v.imag * y - abs(v) ** 2 / 2) for v in (first, second))
        gap = (1 - rate) * (1 - factor) + rate * one - factor * rate * other
        return float(np.sum(mass * np.maximum(gap, 0.0)))

    generator = np.random.default_rng(26)
    for _ in range(100):
        rate, reach = float(generator.uniform(0.02, 1)), float(generator.uniform(0.1, 1.5))
        epsilon = float(generator.normal(0, rate * reach))
        lengths = reach * generator.uniform(0, 1, 2) ** 0.3
        angles = generator.uniform(0, 2 * math.pi, 2)
        first, second = (lengths * np.exp(1j * angles)).tolist()
        opposite = delta(reach + 0j, -reach + 0j, rate, epsilon)
        # the kink costs the quadrature up to 2e-3 of a delta near 0
        assert delta(first, second, rate, epsilon) <= opposite + 2e-3 * rate * reach


@pytest.mark.parametrize(("rate", "mu"), [(1e-3, 2.0), (1e-5, 2.0), (2**-32, 10.0)])
def test_a_rare_coin_does_not_make_a_price_take_minutes_to_find(rate: float, mu: float) -> None:
    one = PrivacyLosses.of_mirrored_mixtures(rate=rate, reach=mu / 2)
    epsilons, deltas = one.composed(1, knots_per_deviation=50)
    assert len(one.masses) <= 2**18 + 1
    assert len(epsilons) <= 2**15
    for k in range(0, len(epsilons), len(epsilons) // 12):
        assert delta_of_one(float(epsilons[k]), rate, mu / 2) <= deltas[k] * (1 + 1e-9)


def test_a_coin_that_always_says_yes_buys_nothing() -> None:
    for mu, rounds in ((0.3, 1), (0.1, 100)):
        assert 1.0 <= hidden_mu(rate=1.0, mu=mu, rounds=rounds) / (mu * math.sqrt(rounds)) < 1.001


GRID = tuple(itertools.product((0.01, 0.2, 0.8), (0.1, 1.0), (2, 60)))


@pytest.mark.parametrize(("rate", "mu", "rounds"), GRID)
def test_a_price_rises_with_each_argument_and_never_passes_that_of_known_participants(
    rate: float, mu: float, rounds: int
) -> None:
    price = hidden_mu(rate=rate, mu=mu, rounds=rounds)
    assert price < mu * math.sqrt(rounds)
    assert price < hidden_mu(rate=rate * 1.2, mu=mu, rounds=rounds)
    assert price < hidden_mu(rate=rate, mu=mu * 1.2, rounds=rounds)
    assert price < hidden_mu(rate=rate, mu=mu, rounds=2 * rounds)


@pytest.mark.parametrize(
    ("rate", "total", "rounds"),
    [(0.05, 0.24, 1000), (0.05, 1.1, 1000), (0.3, 3.0, 40), (1.0, 0.05, 1), (0.01, 0.1, 500)],
)
def test_the_noise_for_a_price_costs_that_price(rate: float, total: float, rounds: int) -> None:
    mu = hidden_round_mu(rate=rate, total=total, rounds=rounds)
    assert total * (1 - 1e-5) <= hidden_mu(rate=rate, mu=mu, rounds=rounds) <= total


def test_where_the_least_noise_costs_less_than_the_price_it_is_taken() -> None:
    assert hidden_round_mu(rate=0.01, total=8.0, rounds=1) == LARGEST_MU


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-6, 1e-3])
def test_the_slack_of_all_jobs_under_a_cap_leaves_its_delta_whole(
    epsilon: float, delta: float
) -> None:
    cap = Cap(epsilon=epsilon, delta=delta)
    exact = mpmath_delta(epsilon, cap.mu)
    assert cap.forgives_slack == (delta >= 2e-8 * cap.mu**2)
    if cap.forgives_slack:
        assert exact + mpmath.mpf(SLACK) * mpmath.mpf(cap.mu) ** 2 < delta


def test_a_pure_cap_forgives_no_slack() -> None:
    assert not Cap(epsilon=1.0, delta=0.0).forgives_slack


def mpmath_delta(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


@pytest.mark.parametrize(
    ("rate", "mu", "rounds"),
    [
        (0.0, 1.0, 10),
        (1.1, 1.0, 10),
        (math.nan, 1.0, 10),
        (0.1, 0.0, 10),
        (0.1, math.inf, 10),
        (0.1, LARGEST_MU * 1.01, 10),
        (0.1, 1.0, 0),
        (0.1, 1.0, LARGEST_ROUNDS + 1),
        (1.0, 10.0, 10**5),
    ],
)
def test_what_has_no_price_gets_none(rate: float, mu: float, rounds: int) -> None:
    with pytest.raises(ValueError):
        hidden_mu(rate=rate, mu=mu, rounds=rounds)
    with pytest.raises(ValueError):
        hidden_round_mu(rate=rate, total=0.0, rounds=rounds)
