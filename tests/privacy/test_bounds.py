"""The audit's arithmetic: its bounds are exact, seldom too high, and sharp enough to see something.

Simulated guesses come from numpy with fixed seeds, so the verdicts never change.
"""

import math

import numpy as np
import pytest
from scipy import stats

from audit import scenarios
from audit.bounds import Counts, at_least, at_most, lower_bounds
from audit.claims import Claim, Measured
from shoal_protocol.privacy.mechanisms import gaussian_delta, gaussian_mu

GAUSSIAN = [
    Claim(epsilon=epsilon, delta=1e-5, mu=gaussian_mu(epsilon=epsilon, delta=1e-5))
    for epsilon in (1.0, 3.0)
]
LAPLACE = Claim(epsilon=1.0, delta=0.0, mu=-2.0 * float(stats.norm.ppf(1.0 / (1.0 + math.e))))


def simulated(
    claim: Claim, trials: int, failure: float, audits: int, stronger: float = 1.0
) -> list[Measured]:
    """Return what so many audits would find if the noise were the claimed one over `stronger`."""
    generator = np.random.default_rng(trials)
    thresholds = claim.thresholds(trials=trials, failure=failure)

    def tail(x: float) -> float:
        return claim.tail(stronger * x)

    return [
        claim.measured(
            [
                Counts(
                    trials=trials,
                    hits=int(generator.binomial(trials, tail(threshold - claim.distance))),
                    alarms=int(generator.binomial(trials, tail(threshold))),
                )
                for threshold in thresholds
            ],
            failure=failure,
        )
        for _ in range(audits)
    ]


@pytest.mark.parametrize(("successes", "trials"), [(1, 10), (5, 10), (40, 1000), (999, 1000)])
def test_at_the_lower_bound_so_many_successes_have_the_failure_probability(
    successes: int, trials: int
) -> None:
    low = at_least(successes, trials, 1e-3)
    assert stats.binom.sf(successes - 1, trials, low) == pytest.approx(1e-3, rel=1e-6)
    high = at_most(trials - successes, trials, 1e-3)
    assert stats.binom.cdf(trials - successes, trials, high) == pytest.approx(1e-3, rel=1e-6)


@pytest.mark.parametrize("proportion", [0.001, 0.02, 0.3, 0.5, 0.97])
@pytest.mark.parametrize("trials", [20, 300])
def test_a_bound_on_a_proportion_is_too_high_no_more_often_than_stated(
    trials: int, proportion: float
) -> None:
    wrong = sum(
        stats.binom.pmf(successes, trials, proportion)
        for successes in range(trials + 1)
        if at_least(successes, trials, 0.05) > proportion
    )
    assert wrong <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("claim", [*GAUSSIAN, LAPLACE], ids=str)
def test_an_exact_claim_is_refuted_no_more_often_than_stated(claim: Claim) -> None:
    # 2,000 audits at a failure of 5 %: more than 140 refuted would have a probability below 1e-4
    # if every one were refuted with 5 %.
    audits = simulated(claim, 2000, failure=0.05, audits=2000)
    assert sum(audit.refutes_the_claim for audit in audits) <= 140


@pytest.mark.parametrize("claim", GAUSSIAN, ids=str)
def test_with_endless_runs_the_bounds_are_what_the_gaussian_costs(claim: Claim) -> None:
    trials, normal = 10**15, stats.norm
    for threshold in (claim.mu / 2.0, claim.mu / 2.0 + claim.epsilon / claim.mu):
        hits, alarms = normal.sf(threshold - claim.mu), normal.sf(threshold)
        counts = Counts(trials=trials, hits=round(trials * hits), alarms=round(trials * alarms))
        bounds = lower_bounds([counts], delta=claim.delta, failure=1e-6)
        assert bounds.mu == pytest.approx(claim.mu, rel=1e-4)
        assert bounds.mu <= claim.mu
        assert bounds.epsilon <= claim.epsilon
    # at the second threshold the worlds' likelihoods differ by exp(epsilon)
    assert hits - math.exp(claim.epsilon) * alarms == pytest.approx(
        gaussian_delta(epsilon=claim.epsilon, mu=claim.mu), rel=1e-4
    )
    assert bounds.epsilon == pytest.approx(claim.epsilon, rel=1e-2)


@pytest.mark.parametrize(
    ("claim", "trials"), [(GAUSSIAN[0], 800_000), (GAUSSIAN[1], 300_000), (LAPLACE, 10_000)]
)
def test_the_bound_for_any_mechanism_nearly_always_shows_half_of_an_exact_claim(
    claim: Claim, trials: int
) -> None:
    audits = simulated(claim, trials, failure=1e-6, audits=400)
    assert spare([audit.bounds.epsilon for audit in audits], claim.epsilon / 2.0) > 4.3


@pytest.mark.slow
@pytest.mark.parametrize(("claim", "trials"), [(GAUSSIAN[0], 40_000), (GAUSSIAN[1], 20_000)])
def test_the_bound_for_gaussian_mechanisms_shows_half_of_an_exact_claim_with_few_runs(
    claim: Claim, trials: int
) -> None:
    audits = simulated(claim, trials, failure=1e-6, audits=400)
    assert spare([audit.implied_epsilon for audit in audits], claim.epsilon / 2.0) > 5.0


@pytest.mark.parametrize(
    "scenario",
    [
        scenarios.noise_divided_by_root_two(1.0, 40_000),
        scenarios.classical_sigma(31.6, 20_000),
        scenarios.missing_noise(1.0, 40_000),
        scenarios.uncounted_holder(1.0, 40_000),
        scenarios.fresh_noise_on_retry(1.0, 10_000),
        scenarios.sensitivity_of_values(1.0, 10_000),
    ],
    ids=lambda scenario: scenario.name,
)
def test_so_many_runs_of_a_planted_fault_go_unseen_with_a_probability_below_1e_4(
    scenario: scenarios.Scenario,
) -> None:
    claim, trials = scenario.game.claim, scenario.runs
    assert scenario.fault is not None
    stronger = gaussian_mu(epsilon=scenario.fault, delta=claim.delta) / claim.mu
    audits = simulated(claim, trials, failure=1e-6, audits=400, stronger=stronger)
    assert spare([audit.bounds.mu for audit in audits], claim.mu) > 4.0


def spare(found: list[float], least: float) -> float:
    """Return by how many standard deviations bounds lie above a claim, or half of one.

    4 leaves a probability of 3e-5 to fall short, 4.3 one of 1e-5, 5 one of 3e-7.
    """
    return float((np.mean(found) - least) / np.std(found))
