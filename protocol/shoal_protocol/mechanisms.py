"""The noise that clients add: how it is spread, what it sums to and where it ends; no prices.

Two mechanisms, both on the integers and both drawn exactly. `parties` is N - D - C - 1 throughout,
how many clients' noise counts by Theorem 1 of Heikkilä et al. (2017, arXiv:1703.01106): more
of them only add independent noise.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from shoal_protocol.curves import require_positive, require_probability
from shoal_protocol.documents import Model
from shoal_protocol.queries import Mechanism, NoiseDesign

SMALLEST_CLIENT_SCALE: Final = 4.0
"""Smallest discrete Gaussian scale of one client, in lattice units."""

LATTICE_EXCESS: Final = 1e-10
"""Largest log-likelihood error accepted, per round, for treating integer noise as continuous."""

LARGEST_SCALE: Final = 2.0**56
"""64-bit samplers of the Gaussian saturate 128 scales away."""

LARGEST_LAPLACE_SCALE: Final = 2.0**54
"""Shares of the Laplace saturate at 2^62, 256 scales away: with probability below exp(-255)."""

_LOG_FAILURE: Final = 60.0  # tail events of probability exp(-60) are covered by a claim's margins
_LARGEST_FAILURE: Final = 2.0**-40
_TERMS: Final = 64


@dataclass(frozen=True, kw_only=True)
class GaussianPart:
    """One client's noise on a coordinate: P(x) proportional to exp(-x^2 / (2 scale^2))."""

    scale: float

    def variance(self, *, clients: int) -> float:
        """Return the variance of the sum of so many clients' parts."""
        return clients * self.scale**2

    def tail(self, *, clients: int, dimension: int, failure: float = _LARGEST_FAILURE) -> float:
        """Return t such that `dimension` coordinates of the summed noise are within [-t, t].

        Fails with probability at most `failure`. A discrete Gaussian is sub-Gaussian with its own
        scale (Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Fact 18), hence
        t = scale sqrt(2 clients ln(2 dimension / failure)).

        Raises:
            ValueError: a count is not positive, or `failure` is not within (0, 1).
        """
        return self.scale * math.sqrt(2.0 * clients * _surprise(clients, dimension, failure))


@dataclass(frozen=True, kw_only=True)
class LaplacePart:
    """One client's noise on a coordinate: G - G', each negative binomial.

    G counts failures before the r-th success where failing has probability exp(-1 / scale), and
    r = 1 / parties. So `parties` of them sum to a discrete Laplace of `scale`,
    P(x) proportional to exp(-|x| / scale).
    """

    scale: float
    parties: int

    def variance(self, *, clients: int) -> float:
        """Return the variance of the sum of so many clients' parts."""
        return clients / self.parties / (2.0 * math.sinh(0.5 / self.scale) ** 2)

    def tail(self, *, clients: int, dimension: int, failure: float = _LARGEST_FAILURE) -> float:
        """Return t such that `dimension` coordinates of the summed noise are within [-t, t].

        Fails with probability at most `failure`. By Chernoff's bound P(|X| >= t) is at most
        2 exp(-7 t / (8 scale)) M^(clients / parties), where the moment M of one discrete Laplace
        falls with 1 / scale from 64/15, what it is for the continuous one.

        Raises:
            ValueError: a count is not positive, or `failure` is not within (0, 1).
        """
        moment = clients / self.parties * math.log(64.0 / 15.0)
        return 8.0 / 7.0 * self.scale * (_surprise(clients, dimension, failure) + moment)


NoisePart = GaussianPart | LaplacePart


class DiscreteGaussianNoise(Model):
    """Each client adds a discrete Gaussian of `scale` on a coordinate of relative scale 1."""

    mechanism: Literal["discrete_gaussian"] = "discrete_gaussian"
    scale: float = Field(gt=0, le=LARGEST_SCALE)

    def part(self, relative_scale: float, *, parties: int) -> GaussianPart:
        """Return one client's noise on a coordinate; `parties` do not change it."""
        return GaussianPart(scale=self.scale * relative_scale)

    def is_fine_enough(self, design: NoiseDesign, *, parties: int) -> bool:
        """Tell whether this noise, summed over `parties`, may be accounted as continuous.

        Demanded are `SMALLEST_CLIENT_SCALE` on every coordinate, and a `lattice_excess` of at
        most `LATTICE_EXCESS`.

        Raises:
            ValueError: `parties` is not positive.
        """
        smallest = self.scale * min(block.relative_scale for block in design.blocks)
        if smallest < SMALLEST_CLIENT_SCALE:
            return False
        dimension = sum(block.coordinates for block in design.blocks)
        excess = lattice_excess(scale=smallest, parties=parties, dimension=dimension)
        return excess <= LATTICE_EXCESS


class DiscreteLaplaceNoise(Model):
    """The total of `parties` clients is a discrete Laplace of `scale`, at relative scale 1."""

    mechanism: Literal["discrete_laplace"] = "discrete_laplace"
    scale: float = Field(ge=1, le=LARGEST_LAPLACE_SCALE)  # finer noise than the grid is a mistake

    def part(self, relative_scale: float, *, parties: int) -> LaplacePart:
        """Return one client's noise on a coordinate."""
        return LaplacePart(scale=self.scale * relative_scale, parties=parties)

    def is_fine_enough(self, design: NoiseDesign, *, parties: int) -> bool:
        """Return True: the parts sum to exactly what is accounted, on every lattice."""
        return True


Noise = Annotated[DiscreteGaussianNoise | DiscreteLaplaceNoise, Field(discriminator="mechanism")]

NOISES: Final[dict[Mechanism, type[DiscreteGaussianNoise] | type[DiscreteLaplaceNoise]]] = {
    "discrete_gaussian": DiscreteGaussianNoise,
    "discrete_laplace": DiscreteLaplaceNoise,
}


def lattice_excess(*, scale: float, parties: int, dimension: int) -> float:
    """Bound how far the log-likelihood of the summed noise is from a rounded Gaussian's.

    `scale` is the smallest of one client's, over `dimension` coordinates. Two steps, outside an
    event of probability exp(-60):

    - the sum of `parties` discrete Gaussians is one of scale s = scale sqrt(parties) up to
      exp(+-tau) on each coordinate (`fold_excess`);
    - that one and a rounded continuous Gaussian, whose price is exactly
      `shoal_protocol.curves.gaussian_delta`, differ at distance x from the mean by at most
      (x^2 / s^2 + 1) / (24 s^2) on each coordinate; the sum of squares is bounded by Laurent and
      Massart (2000, Lemma 1).

    Raises:
        ValueError: an argument is not positive.
    """
    require_positive("scale", scale)
    if parties < 1 or dimension < 1:
        raise ValueError("parties and dimension must be positive")
    squares = dimension + 2.0 * math.sqrt(dimension * _LOG_FAILURE) + 2.0 * _LOG_FAILURE
    # 6 instead of 24, as x is measured from the neighbour's mean too: enough for mu up to 11.
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


def _surprise(clients: int, dimension: int, failure: float) -> float:
    require_probability(failure)
    if clients < 1 or dimension < 1:
        raise ValueError("clients and dimension must be positive")
    return math.log(2.0 * dimension / failure)
