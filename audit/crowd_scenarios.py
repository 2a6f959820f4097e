"""Which contributions to a crowd are played: honest ones, and one with too little noise."""

from audit.contributions import TASK, ContributionGame
from audit.scenarios import Scenario, Weakened
from shoal_client.noise import NoiseSampler, exact_noise


def honest(epsilon: float, runs: int) -> Scenario:
    """Return one contribution to a crowd's logistic regression."""
    return Scenario(
        name=f"crowd, ε = {epsilon:g}", game=_contribution(epsilon, exact_noise), runs=runs
    )


def half_the_noise(epsilon: float, runs: int) -> Scenario:
    """Plant noise made for steps that are the clip apart, where they are twice the clip apart."""
    game = _contribution(epsilon, Weakened(0.5))
    return Scenario(
        name=f"crowd, noise for γ instead of 2γ, ε = {epsilon:g}",
        game=game,
        runs=runs,
        fault=2.0 * epsilon,
    )


def _contribution(epsilon: float, sampler: NoiseSampler) -> ContributionGame:
    return ContributionGame(task=TASK.model_copy(update={"epsilon": epsilon}), sampler=sampler)
