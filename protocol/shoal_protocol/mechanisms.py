"""The noise that clients add: how much of it, and where it ends; it knows no price and no party.

Everywhere, neighbours differ by **replacement**: one client's whole contribution is exchanged for
any other admissible one, the number of clients stays as it is.
"""

import math
from typing import Final

from shoal_protocol.curves import require_at_least_zero, require_positive, require_probability

SMALLEST_CLIENT_SCALE: Final = 4.0
"""Smallest noise scale of one client, in lattice units. From here on the sum of n >= 2 discrete
Gaussians is a discrete Gaussian up to a relative 10 exp(-pi^2 4^2) < 1e-67 (Kairouz, Liu and
Steinke 2021, arXiv:2102.06387, Proposition 10)."""

LATTICE_EXCESS: Final = 1e-8
"""Largest log-likelihood error accepted, per round, for treating integer noise as continuous."""

_LOG_FAILURE: Final = 60.0  # tail events of probability exp(-60) are covered by a claim's margins


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
    require_positive("sensitivity", sensitivity)
    require_positive("mu", mu)
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
    require_at_least_zero("sensitivity", sensitivity)
    require_positive("noise_scale", noise_scale)
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
    require_positive("noise_scale", noise_scale)
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
    require_positive("noise_scale", noise_scale)
    require_probability(failure)
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
