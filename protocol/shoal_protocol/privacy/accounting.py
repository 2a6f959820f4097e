"""The one module that states prices: what releases cost, together too, and what a cap allows.

Everywhere, neighbours differ by **replacement**: one client's whole contribution is exchanged for
any other admissible one, the number of clients stays as it is. Nothing is amplified: who took
part is taken to be known.

A cost has two numbers. `mu` is the Gaussian parameter (Dong, Roth and Su 2022, arXiv:1905.02383),
of which every release has one; `epsilon` the pure one, infinite for Gaussian noise. Releases on
the same client compose: mu^2 adds up, and so does epsilon. Later ones and their costs may be chosen
after seeing the earlier, as long as the sum stays within a cap fixed beforehand: a filter (for mu
Smith and Thakurta 2022, arXiv:2210.17520, and for each client its own Koskela, Tobaben and Honkela
2022, arXiv:2209.15596). What keeps to a cap in either number keeps to it: with delta = 0 only
epsilon counts, and Gaussian noise never fits.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.privacy.curves import (
    gaussian_mu,
    pure_mu,
    require_at_least_zero,
    require_positive,
    require_probability,
)
from shoal_protocol.privacy.fineness import effective_noise_clients
from shoal_protocol.privacy.mechanisms import DiscreteGaussianNoise, DiscreteLaplaceNoise
from shoal_protocol.queries import Mechanism

Amount = float | NDArray[np.float64]

PRICE_MARGIN: Final = 1e-10
"""Relative; by it a price is above what the noise costs, which covers all that is forgiven."""

_BUDGET_SLACK: Final = 1e-12


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One client's privacy loss: the Gaussian parameter, and the pure epsilon (or infinity)."""

    mu: float
    epsilon: float

    def __post_init__(self) -> None:
        require_at_least_zero("mu", self.mu)
        if not self.epsilon >= 0.0:
            raise ValueError("epsilon must not be negative")

    @classmethod
    def gaussian(cls, mu: float) -> Self:
        """Return the cost of Gaussian noise: no pure epsilon."""
        return cls(mu=mu, epsilon=math.inf if mu > 0.0 else 0.0)

    @classmethod
    def pure(cls, epsilon: float) -> Self:
        """Return the cost of whatever is `epsilon`-private with delta = 0."""
        return cls(mu=pure_mu(epsilon=epsilon), epsilon=epsilon)

    @classmethod
    def stated(cls, mu: float, epsilon: float | None) -> Self:
        """Return the cost that a document states: there None is infinite."""
        return cls(mu=mu, epsilon=math.inf if epsilon is None else epsilon)

    @property
    def stated_epsilon(self) -> float | None:
        """Return epsilon as documents have it: None where there is no finite one."""
        return self.epsilon if math.isfinite(self.epsilon) else None


NOTHING: Final = Cost(mu=0.0, epsilon=0.0)


def compose(costs: Iterable[Cost]) -> Cost:
    """Return the cost of several releases on the same clients together.

    mu = sqrt(sum mu^2), exact for Gaussians (Dong, Roth and Su, Corollary 2); epsilon =
    sum epsilon, exact for pure mechanisms with delta = 0.
    """
    several = tuple(costs)
    return Cost(
        mu=math.hypot(*(cost.mu for cost in several)),
        epsilon=math.fsum(cost.epsilon for cost in several),
    )


@dataclass(frozen=True, kw_only=True)
class Cap:
    """A limit of (`epsilon`, `delta`) on what one client may lose over several releases."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        if self.delta != 0.0:
            require_probability(self.delta)

    @property
    def is_pure(self) -> bool:
        """Tell whether delta is 0, so that Gaussian noise never fits."""
        return self.delta == 0.0

    @property
    def mechanism(self) -> Mechanism:
        """Return the noise that suits it: the Laplace for a pure cap, else the Gaussian."""
        return "discrete_laplace" if self.is_pure else "discrete_gaussian"

    @property
    def mu(self) -> float:
        """Return the largest Gaussian parameter; 0 for a pure cap, which has none."""
        return 0.0 if self.is_pure else gaussian_mu(epsilon=self.epsilon, delta=self.delta)

    def allows(self, cost: Cost) -> bool:
        """Tell whether one client may lose this much, as `holds` does."""
        return bool(self.holds(cost.mu**2, cost.epsilon))

    def holds(self, mu_squared: Amount, epsilon: Amount) -> Any:
        """Tell of composed sums, each a number or an array, whether they keep to the cap.

        Ask this, not `<=`: shares of a budget add up to it only up to the last bit. 1e-12 of mu
        and epsilon is forgiven, which `PRICE_MARGIN` covers.
        """
        slack = 1.0 + _BUDGET_SLACK
        by_mu = np.less_equal(mu_squared, (self.mu * slack) ** 2)
        return by_mu | np.less_equal(epsilon, self.epsilon * slack)

    def part(self, share: float) -> Cost:
        """Return the cost that takes this share of it: of mu^2, or of epsilon if it is pure.

        Raises:
            ValueError: `share` is not within (0, 1].
        """
        if not 0.0 < share <= 1.0:
            raise ValueError("a share of a budget must be within (0, 1]")
        if self.is_pure:
            return Cost.pure(share * self.epsilon)
        return Cost.gaussian(math.sqrt(share) * self.mu)

    @property
    def whole(self) -> Cost:
        """Return the cost that takes all of it."""
        return self.part(1.0)

    def __str__(self) -> str:
        """Say it as in "epsilon 1 at delta 1e-06"."""
        return f"epsilon {self.epsilon:g} at delta {self.delta:g}"


def price(
    noise: DiscreteGaussianNoise | DiscreteLaplaceNoise,
    *,
    sensitivity: float,
    population: int,
    dropouts: int,
    colluders: int,
) -> Cost:
    """Return what a release with this noise costs, in the worst cohort that may be summed.

    The inverse of `noise_for`: against an observer of the sum who is in league with `colluders`
    clients. `sensitivity` is in the mechanism's norm.

    Raises:
        ValueError: `sensitivity` is not positive and finite, or nobody would add noise.
    """
    parties = effective_noise_clients(population=population, dropouts=dropouts, colluders=colluders)
    return price_with(noise, sensitivity, parties)


def price_with(
    noise: DiscreteGaussianNoise | DiscreteLaplaceNoise, sensitivity: float, clients: int
) -> Cost:
    """Return the cost where so many `clients`' noise counts, raised by `PRICE_MARGIN`.

    More of them make a discrete Gaussian larger. They must be at least as many as a discrete
    Laplace's parties; more add noise to it too, but nothing less than its epsilon can be promised.

    Raises:
        ValueError: `sensitivity` is not positive and finite.
    """
    require_positive("sensitivity", sensitivity)
    raised = 1.0 + PRICE_MARGIN
    if noise.mechanism == "discrete_gaussian":
        return Cost.gaussian(sensitivity / (noise.scale * math.sqrt(clients)) * raised)
    return Cost.pure(sensitivity / noise.scale * raised)
