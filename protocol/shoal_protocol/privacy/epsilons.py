"""Converts costs to epsilon at a delta, and computes how much epsilon a cap leaves."""

import math

from shoal_protocol.privacy.accounting import Cap, Cost
from shoal_protocol.privacy.curves import (
    BISECTIONS,
    gaussian_delta,
    pure_mu,
    require_at_least_zero,
    require_probability,
)


def gaussian_epsilon(*, mu: float, delta: float) -> float:
    """Return the smallest epsilon at `delta` of a Gaussian release with parameter `mu`.

    0.0 if `mu` is 0. The neighbouring data sets differ by the replacement of one client.

    Raises:
        ValueError: `mu` is negative or not finite, or `delta` is not strictly within (0, 1).
    """
    require_at_least_zero("mu", mu)
    require_probability(delta)
    if gaussian_delta(epsilon=0.0, mu=mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon=high, mu=mu) > delta:
        low, high = high, 2.0 * high
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if gaussian_delta(epsilon=middle, mu=mu) > delta:
            low = middle
        else:
            high = middle
    return high


def pure_epsilon(*, mu: float) -> float:
    """Return the largest `epsilon` of which `pure_mu` is at most `mu`.

    Raises:
        ValueError: `mu` is negative or not finite.
    """
    require_at_least_zero("mu", mu)
    low, high = 0.0, 1.0
    while pure_mu(epsilon=high) <= mu:
        low, high = high, 2.0 * high
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if pure_mu(epsilon=middle) <= mu:
            low = middle
        else:
            high = middle
    return low


def epsilon_at(delta: float, cost: Cost) -> float:
    """Return an epsilon at `delta` that follows from a cost's two numbers, or infinity."""
    if delta == 0.0:
        return cost.epsilon
    return min(cost.epsilon, gaussian_epsilon(mu=cost.mu, delta=delta))


def epsilon_left(cap: Cap, spent: Cost) -> tuple[float, float]:
    """Return the largest epsilon of one more pure release, and of one more Gaussian at the delta.

    They differ, for each currency counts alone: a pure release takes up more of `mu` than a
    Gaussian one of the same epsilon, and after a Gaussian one only `mu` can hold a pure one.
    """
    mu = math.sqrt(max(0.0, cap.mu**2 - spent.mu**2))
    pure = max(0.0, cap.epsilon - spent.epsilon, pure_epsilon(mu=mu))
    return pure, 0.0 if cap.is_pure else gaussian_epsilon(mu=mu, delta=cap.delta)
