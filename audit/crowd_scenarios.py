"""Which contributions to a crowd are played: honest ones, and such with too little noise."""

from audit.contributions import TASK, WEIGHTS, ContributionGame
from audit.scenarios import Scenario, Weakened
from shoal_holder.noise import NoiseSampler, exact_noise
from shoal_protocol.crowds.tasks import Variant


def honest(epsilon: float, runs: int, *, variant: Variant = "one") -> Scenario:
    """Return one contribution to a crowd's logistic regression; `epsilon` is its price."""
    return Scenario(
        name=f"crowd, {variant}, ε = {epsilon:g}",
        game=_contribution(epsilon, variant, exact_noise),
        runs=runs,
    )


def half_the_noise(epsilon: float, runs: int, *, variant: Variant = "one") -> Scenario:
    """Plant noise made for steps that are the clip apart, where they are twice the clip apart."""
    return Scenario(
        name=f"crowd, {variant}, noise for γ instead of 2γ, ε = {epsilon:g}",
        game=_contribution(epsilon, variant, Weakened(0.5)),
        runs=runs,
        fault=2.0 * epsilon,
    )


def noise_for_one_weight(epsilon: float, runs: int) -> Scenario:
    """Plant, where every weight moves, the noise of a contribution that moves one."""
    return Scenario(
        name=f"crowd, all, noise for one weight, ε = {epsilon:g}",
        game=_contribution(epsilon, "all", Weakened(1.0 / WEIGHTS)),
        runs=runs,
        fault=WEIGHTS * epsilon,
    )


def price_of_one_weight(epsilon: float, runs: int) -> Scenario:
    """Plant a price that forgets that with "feature" each weight costs as much again."""
    return Scenario(
        name=f"crowd, feature, priced as one weight, ε = {epsilon:g}",
        game=_contribution(epsilon, "feature", Weakened(1.0 / WEIGHTS)),
        runs=runs,
        fault=WEIGHTS * epsilon,
    )


def _contribution(price: float, variant: Variant, sampler: NoiseSampler) -> ContributionGame:
    """Return a contribution that costs `price` in all."""
    epsilon = price / WEIGHTS if variant == "feature" else price
    task = TASK.model_copy(update={"epsilon": epsilon, "variant": variant})
    return ContributionGame(task=task, sampler=sampler)
