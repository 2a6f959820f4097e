"""Gaussian and pure curves against mpmath."""

import itertools
import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.privacy import mechanisms
from shoal_protocol.privacy.job_costs import gaussian_epsilon

EPSILONS = (0.0, 1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 31.6, 100.0)
DELTAS = (1e-15, 1e-12, 1e-8, 1e-5, 1e-4, 1e-2, 0.3)
GRID = tuple(itertools.product(EPSILONS, DELTAS))

mus = st.floats(1e-6, 20.0)
epsilons = st.floats(0.0, 100.0)
deltas = st.floats(1e-15, 0.5)


def exact_delta(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(80):
        shift, half = mpmath.mpf(epsilon) / mu, mpmath.mpf(mu) / 2
        return mpmath.ncdf(half - shift) - mpmath.exp(epsilon) * mpmath.ncdf(-half - shift)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_the_mu_allowed_for_a_budget_keeps_to_it_and_wastes_next_to_nothing(epsilon, delta):
    mu = mechanisms.gaussian_mu(epsilon=epsilon, delta=delta)
    assert exact_delta(epsilon, mu) <= delta
    assert exact_delta(max(0.0, epsilon - 2e-6), mu * (1.0 + 1e-5)) >= delta


@given(epsilon=epsilons, mu=mus)
def test_a_claimed_delta_is_never_below_the_true_one(epsilon, mu):
    assert mechanisms.gaussian_delta(epsilon=epsilon, mu=mu) >= exact_delta(epsilon, mu)


@given(mu=mus, delta=deltas)
def test_a_claimed_epsilon_is_never_below_the_true_one(mu, delta):
    epsilon = gaussian_epsilon(mu=mu, delta=delta)
    assert exact_delta(epsilon, mu) <= delta
    if epsilon > 1e-5:
        assert exact_delta(epsilon - 1e-5, mu) > delta


@given(mu=mus, delta=deltas)
def test_what_the_budget_check_forgives_is_within_the_claim(mu, delta):
    claimed = gaussian_epsilon(mu=mu, delta=delta)
    assert exact_delta(claimed, mu * (1.0 + 1e-12)) <= delta


def pure_mu(epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(700):
        tail = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        return -2 * mpmath.sqrt(2) * mpmath.erfinv(2 * tail - 1)


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 9.9e-5, 1.1e-4, 0.01, 1.0, 3.0, 31.6, 100.0, 400.0])
def test_the_mu_of_a_pure_epsilon_is_never_below_the_true_one_and_wastes_next_to_nothing(epsilon):
    true, ours = pure_mu(epsilon), mechanisms.pure_mu(epsilon=epsilon)
    assert ours >= true
    assert ours == pytest.approx(float(true), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("claimed", [0.0, 0.05, 0.5, 0.9, 2.0])
def test_whatever_is_purely_private_is_gaussian_private_with_its_mu(epsilon, claimed):
    # randomised response is the worst of all that is epsilon-private
    true = max(0.0, (math.exp(epsilon) - math.exp(claimed)) / (1.0 + math.exp(epsilon)))
    assert (
        mechanisms.gaussian_delta(epsilon=claimed, mu=mechanisms.pure_mu(epsilon=epsilon)) >= true
    )


def test_parts_of_a_pure_epsilon_never_cost_more_mu_than_the_whole():
    for epsilon in (1e-3, 0.1, 1.0, 10.0, 100.0):
        whole = mechanisms.pure_mu(epsilon=epsilon) ** 2
        for share in (0.01, 0.2, 0.5):
            one = mechanisms.pure_mu(epsilon=share * epsilon) ** 2
            other = mechanisms.pure_mu(epsilon=(1.0 - share) * epsilon) ** 2
            assert one + other <= whole * (1.0 + 1e-9)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_numbers_that_mean_nothing_are_refused(bad):
    for call in (
        lambda: mechanisms.gaussian_delta(epsilon=bad, mu=1.0),
        lambda: mechanisms.gaussian_delta(epsilon=1.0, mu=bad),
        lambda: gaussian_epsilon(mu=bad, delta=0.1),
        lambda: gaussian_epsilon(mu=1.0, delta=bad),
        lambda: mechanisms.gaussian_mu(epsilon=bad, delta=0.1),
        lambda: mechanisms.pure_mu(epsilon=bad),
    ):
        with pytest.raises(ValueError):
            call()
