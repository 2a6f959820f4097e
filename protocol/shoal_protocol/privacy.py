"""Privacy cost of Gaussian sums split over clients; knows no data, no query and no party.

Everywhere, neighbours differ by **replacement**: one client's whole contribution is exchanged for
any other admissible one, the number of clients stays as it is. A release is described by its
Gaussian parameter `mu` = L2 sensitivity / standard deviation of the noise, and (epsilon, delta)
follow from the exact condition of Balle and Wang (2018, arXiv:1805.06530, Theorem 8).

Results are rounded against the party that makes the claim: an epsilon or delta that this module
reports is never below the true one, a `mu` that it allows is never above. The margins also cover
that the noise lives on the integers (`is_fine_enough`) and the last bits of floating point.
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

SMALLEST_CLIENT_SCALE: Final = 4.0
"""Smallest noise scale of one client, in lattice units. From here on the sum of n >= 2 discrete
Gaussians is a discrete Gaussian up to a relative 10 exp(-pi^2 4^2) < 1e-67 (Kairouz, Liu and
Steinke 2021, arXiv:2102.06387, Proposition 10)."""

LATTICE_EXCESS: Final = 1e-8
"""Largest log-likelihood error accepted, per round, for treating integer noise as continuous."""

_EPSILON_MARGIN: Final = 1e-6  # covers 50 rounds of twice LATTICE_EXCESS
_DELTA_MARGIN: Final = 1e-8  # relative; covers a relative error of 1e-12 in mu
_SMALLEST_DELTA: Final = 1e-290  # instead of an underflow to zero
_BUDGET_SLACK: Final = 1e-12
_LOG_FAILURE: Final = 60.0  # tail events of probability exp(-60) are covered by _DELTA_MARGIN
_BISECTIONS: Final = 200


def gaussian_delta(*, epsilon: float, mu: float) -> float:
    """Return the smallest delta at `epsilon` of a Gaussian release with parameter `mu`.

    delta = Q(epsilon/mu - mu/2) - exp(epsilon) Q(epsilon/mu + mu/2), Q the upper normal tail.
    The neighbouring data sets differ by the replacement of one client.

    Raises:
        ValueError: `epsilon` or `mu` is negative or not finite.
    """
    _require_at_least_zero("epsilon", epsilon)
    _require_at_least_zero("mu", mu)
    if mu == 0.0:
        return 0.0
    epsilon = max(0.0, epsilon - _EPSILON_MARGIN)
    if epsilon == 0.0:
        return min(1.0, math.erf(mu / math.sqrt(8.0)) * (1.0 + _DELTA_MARGIN))
    near = (epsilon / mu - mu / 2.0) / math.sqrt(2.0)
    far = (epsilon / mu + mu / 2.0) / math.sqrt(2.0)
    # exp(epsilon - far^2) = exp(-near^2), so nothing overflows however large epsilon is.
    scale = 0.5 * math.exp(-near * near) if abs(near) < 26.0 else 0.0
    if near >= 0.0:
        first, second = scale * _scaled_erfc(near), scale * _scaled_erfc(far)
    else:
        first, second = 0.5 * math.erfc(near), scale * _scaled_erfc(far)
    cancellation = 2e-14 * (first + second)
    delta = max(_SMALLEST_DELTA, first - second + cancellation)
    return min(1.0, delta * (1.0 + _DELTA_MARGIN))


def gaussian_epsilon(*, mu: float, delta: float) -> float:
    """Return the smallest epsilon at `delta` of a Gaussian release with parameter `mu`.

    0.0 if `mu` is 0. The neighbouring data sets differ by the replacement of one client.

    Raises:
        ValueError: `mu` is negative or not finite, or `delta` is not strictly within (0, 1).
    """
    _require_at_least_zero("mu", mu)
    _require_probability(delta)
    if gaussian_delta(epsilon=0.0, mu=mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon=high, mu=mu) > delta:
        low, high = high, 2.0 * high
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if gaussian_delta(epsilon=middle, mu=mu) > delta:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=1024)  # every check of a policy asks for the same few
def gaussian_mu(*, epsilon: float, delta: float) -> float:
    """Return the largest `mu` whose Gaussian release costs at most (`epsilon`, `delta`).

    The neighbouring data sets differ by the replacement of one client.

    Raises:
        ValueError: `epsilon` is negative or not finite, or `delta` is not within (0, 1).
    """
    _require_at_least_zero("epsilon", epsilon)
    _require_probability(delta)
    low, high = 0.0, 1.0
    while gaussian_delta(epsilon=epsilon, mu=high) <= delta:
        low, high = high, 2.0 * high
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if gaussian_delta(epsilon=epsilon, mu=middle) <= delta:
            low = middle
        else:
            high = middle
    return low


def compose(mus: Iterable[float]) -> float:
    """Return the parameter of several releases on the same clients together: sqrt(sum mu^2).

    Exact also when a later release was chosen after seeing the earlier ones (Dong, Roth and Su
    2022, arXiv:1905.02383, Corollary 2). Replacement of one client in all of them at once.

    Raises:
        ValueError: a `mu` is negative or not finite.
    """
    parameters = tuple(mus)
    for mu in parameters:
        _require_at_least_zero("mu", mu)
    return math.hypot(*parameters)


def fits_budget(*, spent_mu: float, budget_mu: float) -> bool:
    """Tell whether `spent_mu` keeps to `budget_mu`, forgiving floating-point error of 1e-12.

    Compare a composed cost with a cap by this function, not by `<=`: shares of a budget add up
    to the budget only up to the last bit. The reported epsilon covers what is forgiven.
    """
    _require_at_least_zero("spent_mu", spent_mu)
    _require_at_least_zero("budget_mu", budget_mu)
    return spent_mu <= budget_mu * (1.0 + _BUDGET_SLACK)


def effective_noise_clients(*, population: int, dropouts: int, colluders: int) -> int:
    """Return N - D - C - 1, how many clients' noise protects a client in the worst case.

    Theorem 1 of Heikkilä et al. (2017, arXiv:1703.01106) with T = D + C: `dropouts` may be
    missing from the sum, `colluders` may reveal their noise or add none, and the one client by
    whom neighbours differ is not counted either.

    Raises:
        ValueError: an argument is negative, or no noise would be left.
    """
    if population < 1 or dropouts < 0 or colluders < 0:
        raise ValueError("population must be positive, dropouts and colluders not negative")
    clients = population - dropouts - colluders - 1
    if clients < 1:
        raise ValueError(
            f"{population} clients less {dropouts} dropouts, {colluders} colluders and the "
            "protected one leave nobody to add noise"
        )
    return clients


def client_noise_scale(
    *, sensitivity: float, mu: float, population: int, dropouts: int, colluders: int
) -> float:
    """Return the noise scale of each client, in the units of `sensitivity` (Theorem 1).

    sensitivity / (mu sqrt(N - D - C - 1)); `sensitivity` is for replacement of one client.

    Raises:
        ValueError: `sensitivity` or `mu` is not positive and finite, or nobody would add noise.
    """
    _require_positive("sensitivity", sensitivity)
    _require_positive("mu", mu)
    clients = effective_noise_clients(population=population, dropouts=dropouts, colluders=colluders)
    return sensitivity / (mu * math.sqrt(clients)) * (1.0 + 1e-14)


def round_mu(
    *, sensitivity: float, noise_scale: float, population: int, dropouts: int, colluders: int
) -> float:
    """Return the parameter of a round in which each client adds noise of `noise_scale`.

    The inverse of `client_noise_scale`: sensitivity / (noise_scale sqrt(N - D - C - 1)), for
    replacement of one client, against an observer in league with `colluders` clients.

    Raises:
        ValueError: `sensitivity` is negative, `noise_scale` not positive, a number not finite,
            or nobody would add noise.
    """
    _require_at_least_zero("sensitivity", sensitivity)
    _require_positive("noise_scale", noise_scale)
    clients = effective_noise_clients(population=population, dropouts=dropouts, colluders=colluders)
    return sensitivity / (noise_scale * math.sqrt(clients)) * (1.0 + 4e-15)


def is_fine_enough(
    *, noise_scale: float, population: int, dropouts: int, colluders: int, dimension: int
) -> bool:
    """Tell whether integer noise of `noise_scale` per client may be accounted as continuous.

    `noise_scale` is the smallest one over the coordinates, in lattice units. Demanded are
    `SMALLEST_CLIENT_SCALE`, and that the total scale s is so large that a discrete Gaussian in
    `dimension` coordinates and a rounded continuous one, which costs exactly what
    `gaussian_delta` says, have likelihoods within exp(+-`LATTICE_EXCESS`), outside an event of
    probability exp(-60): per coordinate at distance x from the mean their logarithms differ by at
    most (x^2/s^2 + 1) / (24 s^2), and the sum of squares is bounded by Laurent and Massart (2000,
    Lemma 1).

    Raises:
        ValueError: `noise_scale` or `dimension` is not positive, or nobody would add noise.
    """
    _require_positive("noise_scale", noise_scale)
    if dimension < 1:
        raise ValueError("dimension must be positive")
    clients = effective_noise_clients(population=population, dropouts=dropouts, colluders=colluders)
    if noise_scale < SMALLEST_CLIENT_SCALE:
        return False
    squares = dimension + 2.0 * math.sqrt(dimension * _LOG_FAILURE) + 2.0 * _LOG_FAILURE
    # 6 instead of 24, as x is measured from the neighbour's mean too: enough for mu up to 11.
    return (squares + dimension) / (6.0 * clients * noise_scale**2) <= LATTICE_EXCESS


def noise_tail(
    *, noise_scale: float, clients: int, dimension: int, failure: float = 2.0**-40
) -> float:
    """Return t such that all `dimension` coordinates of the summed noise are within [-t, t].

    Fails with probability at most `failure`. A discrete Gaussian is sub-Gaussian with its own
    scale (Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Fact 18), hence
    t = noise_scale sqrt(2 clients ln(2 dimension / failure)).

    Raises:
        ValueError: an argument is not positive, or `failure` is not within (0, 1).
    """
    _require_positive("noise_scale", noise_scale)
    _require_probability(failure)
    if clients < 1 or dimension < 1:
        raise ValueError("clients and dimension must be positive")
    return noise_scale * math.sqrt(2.0 * clients * math.log(2.0 * dimension / failure))


def fits_modulus(
    *,
    largest_value: int,
    population: int,
    noise_scale: float,
    dimension: int,
    modulus_bits: int,
) -> bool:
    """Tell whether the noisy sum of `population` clients can be decoded modulo 2^modulus_bits.

    Demanded is 2 (N largest_value + noise tail at 2^-40) + 1 <= 2^(modulus_bits - 2): two bits
    are spare. Wrapping round would cost correctness, never privacy.

    Raises:
        ValueError: `largest_value` is negative or another argument is not positive.
    """
    if largest_value < 0 or modulus_bits < 3:
        raise ValueError("largest_value must not be negative, modulus_bits at least 3")
    tail = noise_tail(noise_scale=noise_scale, clients=population, dimension=dimension)
    return 2 * (population * largest_value + math.ceil(tail)) < 1 << (modulus_bits - 2)


def _scaled_erfc(x: float) -> float:
    """Return exp(x^2) erfc(x) for x >= 0, to a relative 1e-14."""
    if x < 5.0:
        return math.exp(x * x) * math.erfc(x)
    # Continued fraction 1/(x + (1/2)/(x + 1/(x + (3/2)/(x + ...)))), NIST DLMF 7.9.1.
    tail = x
    for k in range(60, 0, -1):
        tail = x + 0.5 * k / tail
    return 1.0 / (math.sqrt(math.pi) * tail)


def _require_at_least_zero(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0.0):
        raise ValueError(f"{name} must be finite and not negative")


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"{name} must be finite and positive")


def _require_probability(value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError("a probability must lie strictly between 0 and 1")
