"""Checks that integer noise is fine enough for its grid and small enough for the modulus."""

import math
from typing import Final

from shoal_protocol.privacy.curves import require_positive

_TERMS: Final = 64
_LOG_FAILURE: Final = 60.0  # tail events of probability exp(-60) are covered by a claim's margins


def lattice_excess(*, scale: float, parties: int, dimension: int, mu: float) -> float:
    """Bound how far the log-likelihood of the summed noise is from a rounded Gaussian's.

    `scale` is the smallest of one client's, over `dimension` coordinates, and `mu` how many scales
    of the sum its neighbours are apart, at most. Two steps, outside an event of probability
    exp(-60):

    - the sum of `parties` discrete Gaussians is one of scale s = scale sqrt(parties) up to
      exp(+-tau) on each coordinate (`fold_excess`);
    - that one and a rounded continuous Gaussian, whose price is exactly
      `shoal_protocol.privacy.curves.gaussian_delta`, differ at distance x from the mean by at most
      (x^2 / s^2 + 1) / (24 s^2) on each coordinate; the sum of squares is bounded by Laurent and
      Massart (2000, Lemma 1). Measured from the neighbour's mean, it is at most twice that bound
      and twice mu^2 more.

    Raises:
        ValueError: an argument is not positive, or `mu` negative.
    """
    require_positive("scale", scale)
    if parties < 1 or dimension < 1 or not mu >= 0.0:
        raise ValueError("parties and dimension must be positive, and mu not negative")
    squares = dimension + 2.0 * math.sqrt(dimension * _LOG_FAILURE) + 2.0 * _LOG_FAILURE
    # four times those squares are more than is needed while mu^2 is at most one of them
    squares += max(0.0, mu * mu - squares) / 2.0
    rounding = (squares + dimension) / (6.0 * parties * scale**2)
    return rounding + dimension * fold_excess(scale=scale, parties=parties)


def fold_excess(*, scale: float, parties: int) -> float:
    """Return tau, by which the sum of discrete Gaussians may differ from a single one.

    tau = 10 sum_{k=1}^{parties-1} exp(-2 pi^2 scale^2 k / (k + 1)) bounds the difference of the
    log-likelihoods at every integer, for scale^2 >= 1/2 (Kairouz, Liu and Steinke 2021,
    arXiv:2102.06387).

    Raises:
        ValueError: scale^2 is below 1/2, or `parties` is not positive.
    """
    if not scale**2 >= 0.5 or parties < 1:
        raise ValueError("scale^2 must be at least 1/2, and parties positive")

    def term(k: int) -> float:
        return math.exp(-2.0 * (math.pi * scale) ** 2 * k / (k + 1))

    first = math.fsum(term(k) for k in range(1, min(parties, _TERMS)))
    # terms fall with k: those left out are at most the first of them
    return 10.0 * (first + max(0, parties - _TERMS) * term(_TERMS))


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


def fits_modulus(*, largest_value: int, population: int, tail: float, modulus_bits: int) -> bool:
    """Tell whether the noisy sum of `population` clients can be decoded modulo 2^modulus_bits.

    Demanded is 2 (N largest_value + tail) + 1 <= 2^(modulus_bits - 2): two bits are spare.
    Wrapping round would cost correctness, never privacy. `tail` is the noise's.

    Raises:
        ValueError: `largest_value` is negative, or `modulus_bits` below 3.
    """
    if largest_value < 0 or modulus_bits < 3:
        raise ValueError("largest_value must not be negative, modulus_bits at least 3")
    return 2 * (population * largest_value + math.ceil(tail)) < 1 << (modulus_bits - 2)
