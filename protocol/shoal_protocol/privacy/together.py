"""The epsilon and delta of Gaussian and pure releases on the same clients together."""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from shoal_protocol.privacy.accounting import Cost, compose
from shoal_protocol.privacy.curves import (
    BISECTIONS,
    DELTA_MARGIN,
    gaussian_delta,
    require_at_least_zero,
)
from shoal_protocol.privacy.epsilons import gaussian_epsilon

_MOST_RATIOS: Final = 4096
_RATIO_BITS: Final = 44  # of the sum of all steps, so that what rounding adds is far below 1e-8


def epsilon_of(costs: Iterable[Cost], *, delta: float) -> float:
    """Return the smallest epsilon at `delta` of several releases on the same clients together.

    Tight for what the costs say: exact for Gaussians, exact for mechanisms of which only a pure
    epsilon is known, and for both together (`mixed_delta`). With delta = 0 it is the
    sum of the pure epsilons, infinite if a release has none.

    Raises:
        ValueError: `delta` is not within [0, 1).
    """
    several = tuple(costs)
    if delta == 0.0:
        return compose(several).epsilon
    pure = [cost.epsilon for cost in several if 0.0 < cost.epsilon < math.inf]
    others = compose(cost for cost in several if not math.isfinite(cost.epsilon))
    return min(
        mixed_epsilon(mu=others.mu, pure=pure, delta=delta),
        compose(several).epsilon,
    )


def mixed_delta(*, epsilon: float, mu: float, pure: Sequence[float]) -> float:
    """Return the smallest delta at `epsilon` that holds for a Gaussian and pure releases together.

    `mu` is the Gaussian parameter, `pure` are the epsilons of the others, of which nothing else is
    known. The worst that is epsilon_i-private is randomised response (Kairouz, Oh and Viswanath
    2015, arXiv:1311.0776): its log-likelihood ratio is epsilon_i with probability
    e^epsilon_i / (1 + e^epsilon_i), else -epsilon_i. Dominating pairs compose, adaptively too
    (Zhu, Dong and Wang 2022, arXiv:2106.08567), so that
    delta(epsilon) = E[gaussian delta(epsilon - sum of these ratios)].

    Raises:
        ValueError: a number is negative or not finite.
    """
    require_at_least_zero("epsilon", epsilon)
    require_at_least_zero("mu", mu)
    total = math.fsum(
        mass * _delta_of_any(epsilon - ratio, mu) for ratio, mass in _response_ratios(tuple(pure))
    )
    return min(1.0, total * (1.0 + DELTA_MARGIN))


def mixed_epsilon(*, mu: float, pure: Sequence[float], delta: float) -> float:
    """Return the smallest epsilon at `delta` of a Gaussian and pure releases, as `mixed_delta`.

    Raises:
        ValueError: a number is negative or not finite, or `delta` is not within (0, 1).
    """
    high = gaussian_epsilon(mu=mu, delta=delta) + math.fsum(pure)
    if not pure or mixed_delta(epsilon=0.0, mu=mu, pure=pure) <= delta:
        return high if not pure else 0.0
    low = 0.0
    for _ in range(BISECTIONS // 4):
        middle = 0.5 * (low + high)
        if mixed_delta(epsilon=middle, mu=mu, pure=pure) > delta:
            low = middle
        else:
            high = middle
    return high


def _delta_of_any(epsilon: float, mu: float) -> float:
    """Return a Gaussian's delta at an epsilon that may be negative: there by symmetry."""
    if epsilon >= 0.0:
        return gaussian_delta(epsilon=epsilon, mu=mu)
    odds = math.exp(epsilon)
    return odds * gaussian_delta(epsilon=-epsilon, mu=mu) - math.expm1(epsilon)


@lru_cache(maxsize=64)
def _response_ratios(pure: tuple[float, ...]) -> list[tuple[float, float]]:
    """Return (log-likelihood ratio, probability) of randomised responses together.

    Ratios are counted in units of 2^-44 of the largest one, so that equal ones meet; what that
    rounded away is added to all of them in the end. Once there are too many they are rounded up
    to a grid. Both only raise delta.
    """
    for epsilon in pure:
        require_at_least_zero("epsilon", epsilon)
    _, exponent = math.frexp(math.fsum(pure))
    unit = math.ldexp(1.0, max(exponent - _RATIO_BITS, -1074))  # not zero for the smallest sums
    found = {0: 1.0}
    for epsilon in sorted(pure):
        likely, unlikely = (1.0 / (1.0 + math.exp(sign * epsilon)) for sign in (-1.0, 1.0))
        step = round(epsilon / unit)
        following: dict[int, float] = {}
        for ratio, mass in found.items():
            for place, part in ((ratio + step, likely), (ratio - step, unlikely)):
                following[place] = following.get(place, 0.0) + mass * part
        if len(following) > _MOST_RATIOS:
            grid = -(-2 * max(following) // _MOST_RATIOS)
            coarse: dict[int, float] = {}
            for ratio, mass in following.items():
                place = -(-ratio // grid) * grid
                coarse[place] = coarse.get(place, 0.0) + mass
            following = coarse
        found = following
    return [((ratio + len(pure)) * unit, mass) for ratio, mass in found.items()]
