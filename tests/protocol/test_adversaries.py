"""What each adversary learns, at which price, promised and with the noise that was really there."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.privacy.accounting import Cost, compose
from shoal_protocol.privacy.adversaries import Release, Statement, statements
from shoal_protocol.privacy.calibration import noise_for
from shoal_protocol.privacy.together import epsilon_of

FEDERATION = {"population": 100, "dropouts": 20, "colluders": 9}
DELTA = 1e-6


def release(mechanism: str = "discrete_gaussian", **changes: int) -> Release:
    federation = FEDERATION | {key: value for key, value in changes.items() if key in FEDERATION}
    cost = Cost.gaussian(0.5) if mechanism == "discrete_gaussian" else Cost.pure(0.5)
    noise = noise_for(mechanism, sensitivity=1e6, cost=cost, **federation)
    return Release(
        noise=noise, sensitivity=1e6, cohort_size=changes.get("cohort_size"), **federation
    )


def stated(*releases: Release, delta: float = DELTA) -> tuple[Statement, ...]:
    return statements(releases, delta=delta, nodes=4, needed=3)


def test_the_price_of_the_spec_is_against_all_nodes_but_one_with_all_colluders():
    *_, colluding, _ = stated(release())
    assert colluding.adversary == "2 of 4 Compute nodes, with 9 clients of each cohort"
    assert colluding.promised.mu == pytest.approx(0.5, rel=1e-12)
    assert colluding.promised_epsilon == pytest.approx(
        epsilon_of([Cost.gaussian(0.5)], delta=DELTA), rel=1e-9
    )


def test_whoever_is_in_league_with_nobody_learns_less():
    public, trainer, node, colluding, _ = stated(release())
    for alone in (public, trainer, node):
        assert alone.promised.mu == pytest.approx(0.5 * math.sqrt(70 / 79))
        assert alone.promised_epsilon < colluding.promised_epsilon


def test_enough_nodes_together_meet_only_each_clients_own_noise():
    *_, opened = stated(release())
    assert opened.adversary == "3 or more of 4 Compute nodes"
    assert opened.promised.mu == pytest.approx(0.5 * math.sqrt(70))
    assert opened.bought == opened.promised


def test_against_enough_nodes_laplace_parts_promise_nothing():
    *_, opened = stated(release("discrete_laplace"), delta=0.0)
    assert (opened.promised, opened.promised_epsilon, opened.bought) == (None, None, None)


@given(present=st.integers(80, 100))
def test_more_gaussian_noise_than_was_counted_on_buys_a_better_price(present):
    *_, colluding, _ = stated(release(cohort_size=present))
    assert colluding.bought.mu == pytest.approx(0.5 * math.sqrt(70 / (present - 10)))
    assert colluding.bought_epsilon <= colluding.promised_epsilon


@given(present=st.integers(80, 100))
def test_more_laplace_noise_than_was_counted_on_buys_nothing_in_epsilon(present):
    for each in stated(release("discrete_laplace", cohort_size=present), delta=0.0)[:-1]:
        assert each.bought == each.promised
        assert each.promised_epsilon == pytest.approx(0.5)


def test_before_a_cohort_is_known_nothing_is_said_of_its_noise():
    *others, _ = stated(release())
    assert {each.bought for each in others} == {None}
    assert {each.bought_epsilon for each in others} == {None}


def test_a_cohort_that_must_not_be_released_has_no_price():
    with pytest.raises(ValueError, match="cohort"):
        release(cohort_size=79)


@pytest.mark.parametrize("mechanism", ["discrete_gaussian", "discrete_laplace"])
def test_rounds_of_a_job_compose_against_every_adversary(mechanism):
    delta = DELTA if mechanism == "discrete_gaussian" else 0.0
    one, two = release(mechanism, cohort_size=90), release(mechanism, cohort_size=85)
    for single, both in zip(
        stated(one, delta=delta)[:-1], stated(one, two, delta=delta)[:-1], strict=True
    ):
        assert both.promised == compose([single.promised, single.promised])
        assert both.bought_epsilon > single.bought_epsilon
