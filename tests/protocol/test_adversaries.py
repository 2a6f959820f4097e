"""What each adversary learns, at which price, promised and with the noise that was really there."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.privacy.accounting import Cap, Cost, compose
from shoal_protocol.privacy.job_costs import Release, Statement, epsilon_at, noise_for, statements
from shoal_protocol.privacy.mechanisms import DiscreteGaussianNoise
from tests.world.examples import one_block

SENSITIVITY = 1e9  # fine enough for one slot's noise, too
FEDERATION = {"population": 100, "dropouts": 20, "colluders": 9}
DELTA = 1e-6


def release(mechanism: str = "discrete_gaussian", **changes: int) -> Release:
    federation = FEDERATION | {key: value for key, value in changes.items() if key in FEDERATION}
    others = {key: value for key, value in changes.items() if key not in FEDERATION}
    cost = Cost.gaussian(0.5) if mechanism == "discrete_gaussian" else Cost.pure(0.5)
    noise = noise_for(mechanism, sensitivity=SENSITIVITY, cost=cost, **federation)
    return Release(noise=noise, design=one_block(SENSITIVITY), **federation, **others)


def stated(*releases: Release, delta: float = DELTA) -> tuple[Statement, ...]:
    return statements(releases, delta=delta, nodes=4, needed=3)


def test_the_price_of_the_spec_is_against_all_nodes_but_one_with_all_colluders():
    *_, colluding, _ = stated(release())
    assert colluding.adversary == "2 of 4 Compute nodes, with 9 clients of each cohort"
    assert colluding.promised.mu == pytest.approx(0.5, rel=1e-12)
    assert colluding.promised.epsilon == pytest.approx(
        epsilon_at(DELTA, Cost.gaussian(0.5)), rel=1e-9
    )


def test_whoever_is_in_league_with_nobody_learns_less():
    public, trainer, node, colluding, _ = stated(release())
    for alone in (public, trainer, node):
        assert alone.promised.mu == pytest.approx(0.5 * math.sqrt(70 / 79))
        assert alone.promised.epsilon < colluding.promised.epsilon


def test_enough_nodes_together_meet_only_each_clients_own_noise():
    *_, opened = stated(release())
    assert opened.adversary == "3 or more of 4 Compute nodes"
    assert opened.promised.mu == pytest.approx(0.5 * math.sqrt(70))
    assert opened.bought == opened.promised


def test_against_enough_nodes_laplace_parts_promise_nothing():
    *_, opened = stated(release("discrete_laplace"), delta=0.0)
    assert (opened.promised, opened.bought) == (None, None)


def test_enough_nodes_together_meet_the_noise_of_all_slots_of_the_smallest_answer():
    *_, opened = stated(release(smallest_answer=25), release(smallest_answer=9))
    assert opened.sees == "each data holder's noisy sum, with the noise of its slots, 9 at least"
    assert opened.promised.mu == pytest.approx(0.5 * math.sqrt(70 / 25 + 70 / 9))


def against_all_nodes(smallest_answer: int, **federation: int) -> Any:
    """Return what is stated of all nodes together, in a Gaussian round at an epsilon of 1."""
    cost = Cap(epsilon=1.0, delta=1e-5).whole
    noise = noise_for("discrete_gaussian", sensitivity=SENSITIVITY, cost=cost, **federation)
    facts = {"noise": noise, "design": one_block(SENSITIVITY), **federation}
    *_, opened = stated(Release(**facts, smallest_answer=smallest_answer), delta=1e-5)
    return opened


def test_ten_holders_of_ten_thousand_slots_keep_some_privacy_against_all_nodes():
    """Holders of one slot have a mu of 80 in the same federation, and so hardly any."""
    federation = {"population": 100_000, "dropouts": 0, "colluders": 10_000}
    hospitals = against_all_nodes(10_000, **federation)
    phones = against_all_nodes(1, **federation)
    assert hospitals.promised.epsilon == pytest.approx(3.4, abs=0.05)
    assert phones.promised.mu == pytest.approx(80.0, abs=1.0)


def test_sites_of_the_readme_have_what_it_says_against_all_nodes():
    opened = against_all_nodes(200, population=600, dropouts=20, colluders=200)
    assert opened.promised.epsilon == pytest.approx(1.42, abs=0.005)


def test_a_laplace_answer_of_as_many_slots_as_the_price_counts_on_has_its_epsilon():
    for slots, promised in ((69, None), (70, 0.5), (95, 0.5)):
        *_, opened = stated(release("discrete_laplace", smallest_answer=slots), delta=0.0)
        epsilon = opened.promised and opened.promised.epsilon
        assert epsilon == (promised and pytest.approx(promised))


def test_nothing_is_said_of_an_answer_whose_noise_is_too_coarse_for_its_price():
    coarse = replace(release(), design=one_block(1e5), noise=DiscreteGaussianNoise(scale=24_000.0))
    assert coarse.noise.is_fine_enough(coarse.design, parties=10_000, mu=0.5)
    *_, colluding, opened = stated(coarse)
    assert opened.promised is None
    assert colluding.promised.mu == pytest.approx(0.5, rel=0.01)
    *_, opened = stated(replace(coarse, smallest_answer=10_000))
    assert opened.promised.mu == pytest.approx(1e5 / 24_000 / 100)


@given(present=st.integers(80, 100))
def test_more_gaussian_noise_than_was_counted_on_buys_a_better_price(present):
    *_, colluding, _ = stated(release(cohort_size=present))
    assert colluding.bought.mu == pytest.approx(0.5 * math.sqrt(70 / (present - 10)))
    assert colluding.bought.epsilon <= colluding.promised.epsilon


@given(present=st.integers(80, 100))
def test_more_laplace_noise_than_was_counted_on_buys_nothing_in_epsilon(present):
    for each in stated(release("discrete_laplace", cohort_size=present), delta=0.0)[:-1]:
        assert each.bought == each.promised
        assert each.promised.epsilon == pytest.approx(0.5)


def test_before_a_cohort_is_known_nothing_is_said_of_its_noise():
    *others, _ = stated(release())
    assert {each.bought for each in others} == {None}


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
        each = Cost(mu=single.promised.mu, epsilon=single.promised.epsilon)
        assert both.promised.mu == compose([each, each]).mu
        assert both.bought.epsilon > single.bought.epsilon
