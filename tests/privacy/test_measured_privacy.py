"""The audit on the real code: honest rounds stay below their claim, planted faults go above it.

Noise comes from the operating system's generator, so each run differs. In an honest round each
adversary's bounds go above the claim with probability 1e-6 at most; how often they fail to show
what they must is stated at each test (`test_bounds.py` simulates it).
"""

from collections.abc import Iterator
from concurrent.futures import Executor

import pytest

from audit import crowd_scenarios, scenarios
from audit.report import problems
from audit.running import Outcome, processes, run
from audit.scenarios import Scenario

pytestmark = pytest.mark.slow

FAILURE = 1e-6


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with processes() as started:
        yield started


def played(scenario: Scenario, pool: Executor) -> Outcome:
    return run(scenario, pool, failure=FAILURE, advance=lambda runs: None)


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenarios.honest(1.0, 40_000), marks=pytest.mark.exhaustive),
        scenarios.honest(3.0, 20_000),
        scenarios.honest_matrix(3.0, 20_000),
        scenarios.honest_holders(3.0, 20_000),
        pytest.param(scenarios.honest_laplace(1.0, 10_000), marks=pytest.mark.exhaustive),
        scenarios.honest_laplace(3.0, 10_000),
        crowd_scenarios.honest(1.0, 10_000),
        crowd_scenarios.honest(3.0, 10_000, variant="feature"),
        crowd_scenarios.honest(3.0, 10_000, variant="all"),
    ],
    ids=lambda scenario: scenario.name,
)
def test_an_honest_round_costs_what_it_claims_to_every_adversary(
    scenario: Scenario, pool: Executor
) -> None:
    # Less than half of the claim is shown with a probability below 1e-6.
    outcome = played(scenario, pool)
    for measured in outcome.measured.values():
        assert not measured.refutes_the_claim
    assert outcome.worst.epsilon > scenario.game.claim.epsilon / 2.0
    known = [measured.bounds.mu for measured in outcome.measured.values()]
    assert known == sorted(known), "who knows more learns more"
    assert problems([outcome], quick=True) == []


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenarios.honest(1.0, 800_000), id="ε = 1"),
        pytest.param(scenarios.honest(3.0, 240_000), id="ε = 3"),
    ],
)
@pytest.mark.exhaustive
def test_whatever_the_mechanism_were_more_than_half_of_the_claim_is_lost(
    scenario: Scenario, pool: Executor
) -> None:
    # The bound that holds for any mechanism shows less than half with a probability below 1e-5.
    outcome = played(scenario, pool)
    assert problems([outcome], quick=False) == []
    worst = outcome.worst
    assert scenario.game.claim.epsilon / 2.0 < worst.bounds.epsilon < scenario.game.claim.epsilon


# Each fault goes unseen with a probability below 1e-4, most with far less.
@pytest.mark.parametrize(
    "scenario",
    [
        scenarios.noise_divided_by_root_two(1.0, 40_000),
        scenarios.classical_sigma(31.6, 20_000),
        pytest.param(scenarios.missing_noise(1.0, 40_000), marks=pytest.mark.exhaustive),
        scenarios.uncounted_holder(1.0, 40_000),
        pytest.param(scenarios.missing_laplace_noise(1.0, 10_000), marks=pytest.mark.exhaustive),
        scenarios.fresh_noise_on_retry(1.0, 10_000),
        scenarios.sensitivity_of_values(1.0, 10_000),
        crowd_scenarios.half_the_noise(1.0, 10_000),
        crowd_scenarios.half_the_noise(3.0, 10_000, variant="feature"),
        crowd_scenarios.price_of_one_weight(3.0, 10_000),
        crowd_scenarios.noise_for_one_weight(3.0, 10_000),
    ],
    ids=lambda scenario: scenario.name,
)
def test_a_planted_fault_is_caught(scenario: Scenario, pool: Executor) -> None:
    outcome = played(scenario, pool)
    true = scenario.true_epsilon(scenario.worst_adversary)
    assert outcome.worst.refutes_the_claim
    assert true is not None
    assert scenario.game.claim.epsilon < outcome.worst.epsilon < true
    assert problems([outcome], quick=True) == []


def test_an_audit_that_finds_an_honest_round_too_dear_or_a_fault_unseen_says_so(
    pool: Executor,
) -> None:
    wrong = scenarios.noise_divided_by_root_two(1.0, 40_000)
    taken_for_honest = played(
        Scenario(name="taken for honest", game=wrong.game, runs=wrong.runs), pool
    )
    assert any(
        "costs more than it claims" in problem
        for problem in problems([taken_for_honest], quick=True)
    )
    blind = played(scenarios.honest(1.0, 100), pool)
    assert problems([blind], quick=True) == [
        f"{blind.scenario.name}: the audit proves less than half of the claim, so it is blind"
    ]
    unseen = Outcome(
        scenario=Scenario(name="unseen", game=wrong.game, runs=100, fault=2.0),
        measured=blind.measured,
    )
    assert problems([unseen], quick=True) == ["unseen: the fault was not caught"]
