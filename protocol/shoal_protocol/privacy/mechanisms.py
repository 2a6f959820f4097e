"""The noise that clients add: its distribution, the variance and tail of its sum; no prices.

Two mechanisms, both on the integers and both drawn exactly. `parties` is N - D - C - 1 throughout,
how many clients' noise counts by Theorem 1 of Heikkilä et al. (2017, arXiv:1703.01106): more
of them only add independent noise.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Final, Literal

from pydantic import Field

from shoal_protocol.privacy.curves import require_probability
from shoal_protocol.privacy.fineness import lattice_excess
from shoal_protocol.queries import Mechanism, NoiseDesign
from shoal_protocol.wire.documents import Model

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
        rational arithmetic. That one draw stands for the sum of their parts: docs/mathematics.md.

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
        Laplace falls with 1 / scale from 64/15, what it is for the continuous one.

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
