"""The noise that clients add, its distribution, and the (epsilon, delta) that it gives a release.

There are two mechanisms. Both draw integers exactly. `parties` is N - D - C - 1 throughout: how
many clients' noise counts by Theorem 1 of Heikkilä et al. (2017, arXiv:1703.01106), as
`effective_noise_clients` explains. More of them only add independent noise.

A Gaussian release is described by its parameter `mu` = sensitivity / standard deviation of the
noise. (epsilon, delta) follow from the exact condition of Balle and Wang (2018, arXiv:1805.06530,
Theorem 8). The caller says which data sets are neighbours.

Results are rounded to the safe side: an epsilon or delta from here is never below the true one, a
`mu` never above. The margins also cover floating-point errors, and that the noise is on the
integers. Noise must be fine enough for its grid and small enough for the modulus.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Annotated, Final, Literal

from pydantic import Field

from shoal_protocol.queries import Mechanism, NoiseDesign
from shoal_protocol.wire.documents import Model

_EPSILON_MARGIN: Final = 1e-6  # for what rounds' LATTICE_EXCESS adds up to
_DELTA_MARGIN: Final = 1e-8  # relative; covers a relative error of 1e-12 in mu
_SMALLEST_DELTA: Final = 1e-290  # instead of an underflow to zero
_BISECTIONS: Final = 200


def gaussian_delta(*, epsilon: float, mu: float) -> float:
    """Return the smallest delta at `epsilon` of a Gaussian release with parameter `mu`.

    delta = Q(epsilon/mu - mu/2) - exp(epsilon) Q(epsilon/mu + mu/2), Q the upper normal tail.
    The neighbouring data sets differ by the replacement of one client. See docs/mathematics.md,
    proposition 1.1.

    Raises:
        ValueError: `epsilon` or `mu` is negative or not finite.
    """
    require_at_least_zero("epsilon", epsilon)
    require_at_least_zero("mu", mu)
    if mu == 0.0:
        return 0.0
    epsilon = max(0.0, epsilon - _EPSILON_MARGIN)
    if epsilon == 0.0:
        return min(1.0, math.erf(mu / math.sqrt(8.0)) * (1.0 + _DELTA_MARGIN))
    delta, rounding = _tail_difference(epsilon, mu)
    delta = max(_SMALLEST_DELTA, delta + rounding)
    return min(1.0, delta * (1.0 + _DELTA_MARGIN))


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
    return boundary(lambda mu: gaussian_delta(epsilon=epsilon, mu=mu) <= delta)[0]


def boundary(condition: Callable[[float], bool]) -> tuple[float, float]:
    """Return two neighbouring numbers: the condition holds from 0 up to the first of them."""
    low, high = 0.0, 1.0
    while condition(high):
        low, high = high, 2.0 * high
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if middle in (low, high):  # there is no number between them
            break
        if condition(middle):
            low = middle
        else:
            high = middle
    return low, high


def pure_mu(*, epsilon: float) -> float:
    """Return the smallest `mu` such that whatever is `epsilon`-private is `mu`-Gaussian private.

    mu = -2 Phi^-1(1 / (1 + e^epsilon)). Proof: docs/mathematics.md, proposition 1.4.

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
      `gaussian_delta`, differ at distance x from the mean by at most
      (x^2 / s^2 + 1) / (24 s^2) on each coordinate; the sum of squares is bounded by Laurent and
      Massart (2000, Lemma 1). Measured from the neighbour's mean, it is at most twice that bound
      and twice mu^2 more.

    Proof: docs/mathematics.md, proposition 1.12.

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
    """Return n = N - D - C - 1, how many clients' noise protects a client in the worst case.

    Theorem 1 of Heikkilä et al. (2017, arXiv:1703.01106) with T = D + C: `dropouts` may be
    missing from the sum, and `colluders` may reveal their noise or add none. The 1 is the reader
    of the sum, who may be a client and subtract their own noise. The protected client's own noise
    counts among the n. Proof: docs/mathematics.md, theorem 1.

    Raises:
        ValueError: an argument is negative, or no noise would be left.
    """
    if population < 1 or dropouts < 0 or colluders < 0:
        raise ValueError("population must be positive, dropouts and colluders not negative")
    clients = population - dropouts - colluders - 1
    if clients < 1:
        raise ValueError(
            f"{population} clients less {dropouts} dropouts, {colluders} colluders and the "
            "reader of the sum leave nobody to add noise"
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


SMALLEST_CLIENT_SCALE: Final = 4.0
"""Smallest discrete Gaussian scale of one client, in lattice units."""

LATTICE_EXCESS: Final = 1e-10
"""Largest log-likelihood error accepted, per round, for treating integer noise as continuous."""

LARGEST_SCALE: Final = 2.0**56
"""64-bit samplers of the Gaussian saturate 128 scales away."""

LARGEST_LAPLACE_SCALE: Final = 2.0**54
"""Shares of the Laplace saturate at 2^62, 256 scales away: with probability below exp(-255)."""

_LARGEST_FAILURE: Final = 2.0**-40


@dataclass(frozen=True, kw_only=True)
class GaussianPart:
    """A discrete Gaussian on a coordinate: P(x) proportional to exp(-x^2 / (2 scale^2))."""

    scale: float

    def of(self, slots: int) -> "GaussianPart":
        """Return the noise of so many slots, drawn at once: of at least their parts' variance.

        The scale is the smallest 64-bit float whose square is at least `slots` scale^2, decided in
        rational arithmetic. That one draw stands for the sum of their parts: docs/mathematics.md,
        lemma 1.10.

        Raises:
            ValueError: it is beyond `LARGEST_SCALE`.
        """
        scale = _scale_of(slots, self.scale)
        if scale > LARGEST_SCALE:
            raise ValueError("the noise of so many slots is too large to draw")
        return GaussianPart(scale=scale)

    def variance(self, *, clients: int) -> float:
        """Return the variance of the sum of so many of these."""
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
    """The noise of `slots` slots on a coordinate: G - G', each negative binomial.

    G counts failures before the r-th success where failing has probability exp(-1 / scale), and
    r = slots / parties. So that of `parties` slots is a discrete Laplace of `scale`,
    P(x) proportional to exp(-|x| / scale).
    """

    scale: float
    parties: int
    slots: int = 1

    def of(self, slots: int) -> "LaplacePart":
        """Return the noise of so many slots, drawn at once: their parts' sum, exactly."""
        return replace(self, slots=slots)

    def variance(self, *, clients: int) -> float:
        """Return the variance of the sum of so many of these."""
        return clients * self.slots / self.parties / (2.0 * math.sinh(0.5 / self.scale) ** 2)

    def tail(self, *, clients: int, dimension: int, failure: float = _LARGEST_FAILURE) -> float:
        """Return t such that `dimension` coordinates of the summed noise are within [-t, t].

        Fails with probability at most `failure`. By Chernoff's bound P(|X| >= t) is at most
        2 exp(-7 t / (8 scale)) M^(clients slots / parties), where the moment M of one discrete
        Laplace falls with 1 / scale from 64/15, what it is for the continuous one. Proof:
        docs/mathematics.md, proposition 1.13.

        Raises:
            ValueError: a count is not positive, or `failure` is not within (0, 1).
        """
        moment = clients * self.slots / self.parties * math.log(64.0 / 15.0)
        return 8.0 / 7.0 * self.scale * (_surprise(clients, dimension, failure) + moment)


NoisePart = GaussianPart | LaplacePart


class DiscreteGaussianNoise(Model):
    """Each client adds a discrete Gaussian of `scale` on a coordinate of relative scale 1."""

    mechanism: Literal["discrete_gaussian"] = "discrete_gaussian"
    scale: float = Field(gt=0, le=LARGEST_SCALE)

    def part(self, relative_scale: float, *, parties: int) -> GaussianPart:
        """Return one client's noise on a coordinate; `parties` do not change it."""
        return GaussianPart(scale=self.scale * relative_scale)

    def is_fine_enough(self, design: NoiseDesign, *, parties: int, mu: float) -> bool:
        """Tell whether this noise, summed over `parties`, may be accounted as continuous.

        Demanded are `SMALLEST_CLIENT_SCALE` on every coordinate, and a `lattice_excess` of at
        most `LATTICE_EXCESS`. `mu` is what the sum costs.

        Raises:
            ValueError: `parties` is not positive, or `mu` negative.
        """
        smallest = self.scale * min(block.relative_scale for block in design.blocks)
        if smallest < SMALLEST_CLIENT_SCALE:
            return False
        dimension = sum(block.coordinates for block in design.blocks)
        excess = lattice_excess(scale=smallest, parties=parties, dimension=dimension, mu=mu)
        return excess <= LATTICE_EXCESS


class DiscreteLaplaceNoise(Model):
    """The total of `parties` clients is a discrete Laplace of `scale`, at relative scale 1."""

    mechanism: Literal["discrete_laplace"] = "discrete_laplace"
    scale: float = Field(ge=1, le=LARGEST_LAPLACE_SCALE)  # finer noise than the grid is a mistake

    def part(self, relative_scale: float, *, parties: int) -> LaplacePart:
        """Return one client's noise on a coordinate."""
        return LaplacePart(scale=self.scale * relative_scale, parties=parties)

    def is_fine_enough(self, design: NoiseDesign, *, parties: int, mu: float) -> bool:
        """Return True: the parts sum to exactly what is accounted, on every lattice."""
        return True


Noise = Annotated[DiscreteGaussianNoise | DiscreteLaplaceNoise, Field(discriminator="mechanism")]

NOISES: Final[dict[Mechanism, type[DiscreteGaussianNoise] | type[DiscreteLaplaceNoise]]] = {
    "discrete_gaussian": DiscreteGaussianNoise,
    "discrete_laplace": DiscreteLaplaceNoise,
}


@lru_cache(maxsize=64)
def _scale_of(slots: int, scale: float) -> float:
    least, found = slots * Fraction(scale) ** 2, math.sqrt(slots) * scale
    while Fraction(found) ** 2 < least:
        found = math.nextafter(found, math.inf)
    return found


def _surprise(clients: int, dimension: int, failure: float) -> float:
    require_probability(failure)
    if clients < 1 or dimension < 1:
        raise ValueError("clients and dimension must be positive")
    return math.log(2.0 * dimension / failure)
