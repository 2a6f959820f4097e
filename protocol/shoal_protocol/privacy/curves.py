"""What a release reveals as (epsilon, delta): pure numerics.

A Gaussian release is described by its parameter `mu` = sensitivity / standard deviation of the
noise, and (epsilon, delta) follow from the exact condition of Balle and Wang (2018,
arXiv:1805.06530, Theorem 8). Which data sets are neighbours is the caller's to say.

Results are rounded to the safe side: an epsilon or delta from here is never below the true one, a
`mu` never above. The margins also cover floating-point errors, and that the noise is on the
integers (`mechanisms`).
"""

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

_EPSILON_MARGIN: Final = 1e-6  # covers 5,000 rounds of twice LATTICE_EXCESS
DELTA_MARGIN: Final = 1e-8  # relative; covers a relative error of 1e-12 in mu
_SMALLEST_DELTA: Final = 1e-290  # instead of an underflow to zero
BISECTIONS: Final = 200


def gaussian_delta(*, epsilon: float, mu: float) -> float:
    """Return the smallest delta at `epsilon` of a Gaussian release with parameter `mu`.

    delta = Q(epsilon/mu - mu/2) - exp(epsilon) Q(epsilon/mu + mu/2), Q the upper normal tail.
    The neighbouring data sets differ by the replacement of one client.

    Raises:
        ValueError: `epsilon` or `mu` is negative or not finite.
    """
    require_at_least_zero("epsilon", epsilon)
    require_at_least_zero("mu", mu)
    if mu == 0.0:
        return 0.0
    epsilon = max(0.0, epsilon - _EPSILON_MARGIN)
    if epsilon == 0.0:
        return min(1.0, math.erf(mu / math.sqrt(8.0)) * (1.0 + DELTA_MARGIN))
    delta, rounding = _tail_difference(epsilon, mu)
    delta = max(_SMALLEST_DELTA, delta + rounding)
    return min(1.0, delta * (1.0 + DELTA_MARGIN))


def _tail_difference(epsilon: float, mu: float) -> tuple[float, float]:
    """Return Q(epsilon/mu - mu/2) - exp(epsilon) Q(epsilon/mu + mu/2), and its rounding error."""
    near = (epsilon / mu - mu / 2.0) / math.sqrt(2.0)
    far = (epsilon / mu + mu / 2.0) / math.sqrt(2.0)
    # exp(epsilon - far^2) = exp(-near^2), so nothing overflows however large epsilon is.
    scale = 0.5 * math.exp(-near * near) if abs(near) < 26.0 else 0.0
    if near >= 0.0:
        first, second = scale * _scaled_erfc(near), scale * _scaled_erfc(far)
    else:
        first, second = 0.5 * math.erfc(near), scale * _scaled_erfc(far)
    return first - second, 2e-14 * (first + second)


@lru_cache(maxsize=1024)  # every check of a policy asks for the same few
def gaussian_mu(*, epsilon: float, delta: float) -> float:
    """Return the largest `mu` whose Gaussian release costs at most (`epsilon`, `delta`).

    The neighbouring data sets differ by the replacement of one client.

    Raises:
        ValueError: `epsilon` is negative or not finite, or `delta` is not within (0, 1).
    """
    require_at_least_zero("epsilon", epsilon)
    require_probability(delta)
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon=epsilon, mu=high) <= delta:
        low, high = high, 2.0 * high
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if middle in (low, high):  # there is no number between them
            break
        if gaussian_delta(epsilon=epsilon, mu=middle) <= delta:
            low = middle
        else:
            high = middle
    return low


def pure_mu(*, epsilon: float) -> float:
    """Return the smallest `mu` such that whatever is `epsilon`-private is `mu`-Gaussian private.

    mu = -2 Phi^-1(1 / (1 + e^epsilon)). There both trade-off curves cross their diagonal; that of
    `epsilon` runs straight from each end to this point, and the Gaussian one, being convex, below.

    Raises:
        ValueError: `epsilon` is negative or not finite.
    """
    require_at_least_zero("epsilon", epsilon)
    if epsilon < 1e-4:  # mu is concave in epsilon, so its tangent at 0 is above it
        return math.sqrt(math.pi / 2.0) * epsilon * (1.0 + 1e-12)
    if epsilon > 500.0:  # as the lower normal tail is at most exp(-x^2 / 2) / 2
        return math.sqrt(8.0 * epsilon) * (1.0 + 1e-12)
    odds = math.exp(-epsilon)
    return -2.0 * NormalDist().inv_cdf(odds / (1.0 + odds)) * (1.0 + 1e-11)


def _scaled_erfc(x: float) -> float:
    """Return exp(x^2) erfc(x) for x >= 0, to a relative 1e-14."""
    if x < 5.0:
        return math.exp(x * x) * math.erfc(x)
    # Continued fraction 1/(x + (1/2)/(x + 1/(x + (3/2)/(x + ...)))), NIST DLMF 7.9.1.
    tail = x
    for k in range(60, 0, -1):
        tail = x + 0.5 * k / tail
    return 1.0 / (math.sqrt(math.pi) * tail)


def require_at_least_zero(name: str, value: float) -> None:
    """Raise ValueError for a negative number, an infinite one or none."""
    if not (math.isfinite(value) and value >= 0.0):
        raise ValueError(f"{name} must be finite and not negative")


def require_positive(name: str, value: float) -> None:
    """Raise ValueError for a number that is not positive and finite."""
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"{name} must be finite and positive")


def require_probability(value: float) -> None:
    """Raise ValueError for a number that is not strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise ValueError("a probability must lie strictly between 0 and 1")
