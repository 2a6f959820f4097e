"""The one module that states prices: what releases cost, together too, and what a cap allows.

Everywhere, neighbours differ by **replacement**: one client's whole contribution is exchanged for
any other admissible one, the number of clients stays as it is. Nothing is amplified: who took
part is taken to be known.

A cost has two numbers. `mu` is the Gaussian parameter (Dong, Roth and Su 2022, arXiv:1905.02383),
of which every release has one; `epsilon` the pure one, infinite for Gaussian noise. Releases on
the same client compose: mu^2 adds up, and so does epsilon. Later ones and their costs may be chosen
after seeing the earlier, as long as the sum stays within a cap fixed beforehand: a filter (for mu
Smith and Thakurta 2022, arXiv:2210.17520, and for each client its own Koskela, Tobaben and Honkela
2022, arXiv:2209.15596). What keeps to a cap in either number keeps to it (proof:
docs/mathematics.md, proposition 1.5): with delta = 0 only epsilon counts, and Gaussian noise never
fits. Sums of charges by client are kept in memory.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from shoal_protocol.privacy.mechanisms import (
    DiscreteGaussianNoise,
    DiscreteLaplaceNoise,
    effective_noise_clients,
    gaussian_mu,
    pure_mu,
    require_at_least_zero,
    require_positive,
    require_probability,
)
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


USELESS_DELTA: Final = "a larger one would allow to publish the records of one client as they are"
"""What a delta of 1 over the number of clients, or more, means."""


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


_MU_SQUARED, _EPSILON, _UNBOUNDED = range(3)


class Balances:
    """Costs by client, composed as `shoal_protocol.privacy.accounting.compose` does.

    Costs without a finite epsilon are counted apart, so that they can be taken back.
    """

    def __init__(self) -> None:
        """Begin without charges. Memory follows from the number of clients that are charged."""
        self._known = np.zeros(0, np.uint32)  # whose sums there are, ascending
        self._sums = np.zeros((3, 0))

    def copy(self) -> Self:
        """Return the same sums, to be changed apart from these."""
        made = type(self)()
        made._known, made._sums = self._known, self._sums.copy()
        return made

    @property
    def charged(self) -> BitMap:
        """Return the clients of whom a sum is above zero."""
        return BitMap(self._known[self._sums.any(axis=0)])

    def add(self, clients: BitMap, cost: Cost) -> None:
        """Charge each of `clients`."""
        self._change(clients, _as_sums(cost))

    def take_back(self, clients: BitMap, cost: Cost) -> None:
        """Return a charge to each of `clients`."""
        self._change(clients, -_as_sums(cost))

    def reserve(self, clients: BitMap, cost: Cost, *, spent: Self) -> None:
        """Charge each of `clients` what is left of `cost` after what it has spent of it."""
        self._change(clients, np.maximum(_as_sums(cost) - spent._sums_of(clients), 0.0))

    def _change(self, clients: BitMap, change: NDArray[np.float64]) -> None:
        places = self._places(clients)  # which may put a longer array in place
        self._sums[:, places] = np.maximum(self._sums[:, places] + change, 0.0)

    def of(self, clients: BitMap) -> dict[int, Cost]:
        """Return the sums of each of `clients`."""
        mu_squared, epsilon = self._of(clients)
        sums = list(zip(np.sqrt(mu_squared).tolist(), epsilon.tolist(), strict=True))
        costs = {each: Cost(mu=each[0], epsilon=each[1]) for each in set(sums)}
        return {client: costs[each] for client, each in zip(clients, sums, strict=True)}

    def largest(self, clients: BitMap) -> Cost:
        """Return the largest mu and the largest epsilon that any of `clients` was charged."""
        mu_squared, epsilon = self._of(clients)
        return Cost(
            mu=float(np.sqrt(mu_squared.max(initial=0.0))),
            epsilon=float(epsilon.max(initial=0.0)),
        )

    def affording(self, clients: BitMap, cost: Cost, cap: Cap) -> BitMap:
        """Return those of `clients` whom a further cost keeps within `cap`."""
        mu_squared, epsilon = self._of(clients)
        able = cap.holds(mu_squared + cost.mu**2, epsilon + cost.epsilon)
        return clients.copy() if able.all() else BitMap(np.asarray(clients.to_array())[able])

    def _of(self, clients: BitMap) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        sums = self._sums_of(clients)
        return sums[_MU_SQUARED], np.where(sums[_UNBOUNDED] > 0.0, np.inf, sums[_EPSILON])

    def _sums_of(self, clients: BitMap) -> NDArray[np.float64]:
        """Return the sums of `clients`, shape (3, n). Nothing changes: several may read at once."""
        wanted = np.asarray(clients.to_array())
        if np.array_equal(self._known, wanted):
            return self._sums
        places = np.searchsorted(self._known, wanted)
        there = self._are_at(places, wanted)
        sums = np.zeros((3, wanted.size))
        sums[:, there] = self._sums[:, places[there]]
        return sums

    def _places(self, clients: BitMap) -> NDArray[np.intp] | slice:
        """Return where the sums of `clients` are; those without any get a place."""
        wanted = np.asarray(clients.to_array())
        if np.array_equal(self._known, wanted):
            return slice(None)  # many times as fast
        places = np.searchsorted(self._known, wanted)
        if self._are_at(places, wanted).all():
            return places
        together = np.union1d(self._known, wanted)
        sums = np.zeros((3, together.size))
        sums[:, np.searchsorted(together, self._known)] = self._sums
        self._known, self._sums = together, sums
        return np.searchsorted(together, wanted)

    def _are_at(self, places: NDArray[np.intp], wanted: NDArray[np.uint32]) -> NDArray[np.bool_]:
        there = places < self._known.size
        there[there] = self._known[places[there]] == wanted[there]
        return there


def _as_sums(cost: Cost) -> NDArray[np.float64]:
    finite = cost.stated_epsilon
    return np.array([[cost.mu**2], [finite or 0.0], [float(finite is None)]])
