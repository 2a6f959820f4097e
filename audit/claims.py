"""What a round claims to cost, and the thresholds at which that is put to the test."""

import math
from dataclasses import dataclass
from typing import Final

from scipy import stats

from audit.bounds import Counts, LowerBounds, lower_bounds, sharpest_threshold
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.job_costs import gaussian_epsilon

THRESHOLDS: Final = 2


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A round's price: (`epsilon`, `delta`), and its GDP parameter `mu`.

    `delta` is 0 for the discrete Laplace. An adversary's statistic is in units in which, if the
    claim is exact, the noise has scale 1 and the worlds are `distance` apart: on each of so many
    `coordinates`, of which it is the smallest one.
    """

    epsilon: float
    delta: float
    mu: float
    coordinates: int = 1

    @classmethod
    def of(cls, cost: Cost, *, delta: float, coordinates: int = 1) -> "Claim":
        """Return the claim that a release has this cost."""
        epsilon = gaussian_epsilon(mu=cost.mu, delta=delta) if delta else cost.epsilon
        return cls(epsilon=epsilon, delta=delta, mu=cost.mu, coordinates=coordinates)

    @property
    def distance(self) -> float:
        """Return how far the two worlds are apart, in scales of the noise."""
        return self.mu if self.delta else self.epsilon / self.coordinates

    def tail(self, x: float) -> float:
        """Return the probability that the statistic exceeds `x` in the first world."""
        if self.delta:
            return float(stats.norm.sf(x))
        of_one = 0.5 * math.exp(-x) if x >= 0.0 else 1.0 - 0.5 * math.exp(x)
        return float(of_one**self.coordinates)

    def thresholds(self, *, trials: int, failure: float) -> tuple[float, float]:
        """Return the thresholds to be used: where mu shows best, and where epsilon does.

        They come from the claim alone, so no data has been looked at.
        """
        sharpest = sharpest_threshold(
            self.tail,
            distance=self.distance,
            trials=trials,
            delta=self.delta,
            failure=failure / (2 * THRESHOLDS),
        )
        return self.distance / 2.0, sharpest

    def measured(self, counts: list[Counts], *, failure: float) -> "Measured":
        """Return what these counts say of the claim; wrong with probability `failure` at most."""
        return Measured(self, lower_bounds(counts, delta=self.delta, failure=failure))


@dataclass(frozen=True)
class Measured:
    """A claim, and what attacks on the code proved."""

    claim: Claim
    bounds: LowerBounds

    @property
    def implied_epsilon(self) -> float:
        """Return the epsilon of a Gaussian mechanism with the proven `mu`; 0 for pure epsilon."""
        return self.bounds.implied_epsilon(self.claim.delta) if self.claim.delta else 0.0

    @property
    def epsilon(self) -> float:
        """Return the larger of both lower bounds on epsilon."""
        return max(self.bounds.epsilon, self.implied_epsilon)

    @property
    def refutes_the_claim(self) -> bool:
        """Tell whether the code costs more than it claims."""
        return self.bounds.mu > self.claim.mu or self.bounds.epsilon > self.claim.epsilon
