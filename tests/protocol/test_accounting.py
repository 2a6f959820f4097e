"""What releases cost, together too, and what a cap allows."""

import itertools
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal_protocol.privacy.accounting import NOTHING, Cap, Cost, compose, price
from shoal_protocol.privacy.job_costs import epsilon_left, noise_for
from shoal_protocol.privacy.mechanisms import gaussian_mu, pure_mu

MECHANISMS = ("discrete_gaussian", "discrete_laplace")

mus = st.floats(1e-6, 20.0)
pure = st.floats(1e-6, 100.0)
costs = st.one_of(mus.map(Cost.gaussian), pure.map(Cost.pure))
federations = st.fixed_dictionaries(
    {
        "population": st.integers(2, 10**6),
        "dropouts": st.integers(0, 50),
        "colluders": st.integers(0, 50),
    }
)


@given(first=costs, second=costs)
def test_two_releases_cost_more_than_one_in_either_currency(first, second):
    both = compose([first, second])
    assert both.mu >= max(first.mu, second.mu)
    assert both.epsilon >= max(first.epsilon, second.epsilon)
    assert math.isfinite(both.epsilon) == (
        math.isfinite(first.epsilon) and math.isfinite(second.epsilon)
    )


@given(
    epsilon=st.floats(0.01, 100.0),
    delta=st.sampled_from([0.0, 1e-9, 1e-5]),
    weights=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=30),
)
def test_shares_of_a_budget_fit_it_and_a_millionth_more_does_not(epsilon, delta, weights):
    cap = Cap(epsilon=epsilon, delta=delta)
    parts = [cap.part(weight / math.fsum(weights)) for weight in weights]
    assert cap.allows(compose(parts))
    more = cap.part(1e-6)
    assert not cap.allows(compose([*parts, more]))


def test_a_pure_cap_refuses_whatever_is_not_pure():
    cap = Cap(epsilon=100.0, delta=0.0)
    assert not cap.allows(Cost.gaussian(1e-9))
    assert not cap.allows(compose([Cost.pure(0.1), Cost.gaussian(1e-9)]))
    assert cap.allows(Cost.pure(100.0))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (3.0, 1e-9)])
def test_a_cap_with_delta_counts_pure_releases_by_epsilon_or_by_mu_as_is_better(epsilon, delta):
    cap = Cap(epsilon=epsilon, delta=delta)
    step = 0.01
    fits = itertools.takewhile(
        lambda count: cap.allows(compose([Cost.pure(step)] * count)), itertools.count(1)
    )
    by_epsilon = math.floor(epsilon / step + 1e-9)
    by_mu = math.floor((gaussian_mu(epsilon=epsilon, delta=delta) / pure_mu(epsilon=step)) ** 2)
    assert max(fits) == max(by_epsilon, by_mu)


def test_a_pure_job_fits_a_cap_of_the_same_epsilon_with_any_delta():
    for delta in (0.0, 1e-12, 1e-3):
        assert Cap(epsilon=0.5, delta=delta).allows(Cost.pure(0.5))


@given(
    mechanism=st.sampled_from(MECHANISMS),
    federation=federations,
    cap=st.builds(Cap, epsilon=st.floats(0.01, 100.0), delta=st.just(0.0)),
    sensitivity=st.floats(1.0, 1e12),
)
def test_the_price_of_calibrated_noise_never_exceeds_what_it_was_made_for(
    mechanism, federation, cap, sensitivity
):
    assume(federation["population"] > federation["dropouts"] + federation["colluders"] + 1)
    wanted = cap.whole if mechanism == "discrete_laplace" else Cost.gaussian(cap.whole.mu)
    assume(sensitivity > cap.epsilon)
    noise = noise_for(mechanism, sensitivity=sensitivity, cost=wanted, **federation)
    found = price(noise, sensitivity=sensitivity, **federation)
    assert found.mu <= wanted.mu
    assert found.epsilon <= wanted.epsilon
    assert found.mu == pytest.approx(wanted.mu, rel=1e-12)


@given(
    epsilon=st.floats(0.1, 50.0),
    delta=st.sampled_from([0.0, 1e-9, 1e-5, 0.1]),
    pure=st.floats(0.0, 60.0),
    mu=st.floats(0.0, 5.0),
)
def test_what_is_left_of_a_cap_is_as_much_as_it_still_allows(epsilon, delta, pure, mu):
    cap = Cap(epsilon=epsilon, delta=delta)
    spent = compose([Cost.pure(pure), Cost.gaussian(mu)])
    left, gaussian = epsilon_left(cap, spent)
    assume(cap.allows(spent))
    assert cap.allows(compose([spent, Cost.pure(left)]))
    assert not cap.allows(compose([spent, Cost.pure(left * (1.0 + 1e-6) + 1e-4)]))
    if gaussian:
        mus = (
            gaussian_mu(epsilon=max(0.0, gaussian + more), delta=delta) for more in (-1e-6, 1e-4)
        )
        less, more = (compose([spent, Cost.gaussian(mu)]) for mu in mus)
        assert cap.allows(less) and not cap.allows(more)


def test_a_pure_release_can_leave_nothing_for_gaussian_ones_of_the_same_cap() -> None:
    pure, gaussian = epsilon_left(Cap(epsilon=10.0, delta=1e-5), Cost.pure(2.0))
    assert (pure, gaussian) == (8.0, 0.0)
    assert epsilon_left(Cap(epsilon=10.0, delta=1e-5), NOTHING) == pytest.approx((10.0, 10.0))
    assert epsilon_left(Cap(epsilon=10.0, delta=0.0), NOTHING) == (10.0, 0.0)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_numbers_that_mean_nothing_are_refused(bad):
    federation = {"population": 10, "dropouts": 1, "colluders": 1}
    noise = noise_for(
        "discrete_gaussian", sensitivity=1000.0, cost=Cost.gaussian(1.0), **federation
    )
    for call in (
        lambda: Cost(mu=bad, epsilon=1.0),
        lambda: Cost(mu=1.0, epsilon=-1.0),
        lambda: Cost(mu=1.0, epsilon=math.nan),
        lambda: Cost.pure(bad),
        lambda: Cap(epsilon=bad, delta=0.1),
        lambda: Cap(epsilon=1.0, delta=bad),
        lambda: Cap(epsilon=1.0, delta=0.1).part(bad),
        lambda: price(noise, sensitivity=bad, **federation),
        lambda: noise_for(
            "discrete_gaussian", sensitivity=bad, cost=Cost.gaussian(1.0), **federation
        ),
        lambda: noise_for(
            "discrete_laplace", sensitivity=1.0, cost=Cost.gaussian(1.0), **federation
        ),
    ):
        with pytest.raises(ValueError):
            call()
