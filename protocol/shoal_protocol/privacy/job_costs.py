"""What a job costs each client, against each adversary, and the noise that keeps to a price.

Calibration is the inverse of `accounting.price`. A client pays for the rounds in which it was asked
and for no others, so costs are counted for each client.

By Theorem 1 of Heikkilä et al. (2017, arXiv:1703.01106) a price rests on the noise of the clients
that did not collude, less one: the reader of the sum, who may be a client and knows their own. The
cohort that was really summed may hold more such clients than the calibration assumed. Proofs:
docs/mathematics.md, section 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import pydantic
from numpy.typing import NDArray
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import (
    NOTHING,
    PRICE_MARGIN,
    Balances,
    Cap,
    Cost,
    price_with,
)
from shoal_protocol.privacy.mechanisms import (
    NOISES,
    DiscreteGaussianNoise,
    DiscreteLaplaceNoise,
    boundary,
    effective_noise_clients,
    gaussian_delta,
    pure_mu,
    require_at_least_zero,
    require_positive,
    require_probability,
)
from shoal_protocol.queries import Mechanism, NoiseDesign
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Delta, Loss


def gaussian_epsilon(*, mu: float, delta: float) -> float:
    """Return the smallest epsilon at `delta` of a Gaussian release with parameter `mu`.

    0.0 if `mu` is 0. The neighbouring data sets differ by the replacement of one client.

    Raises:
        ValueError: `mu` is negative or not finite, or `delta` is not strictly within (0, 1).
    """
    require_at_least_zero("mu", mu)
    require_probability(delta)
    if gaussian_delta(epsilon=0.0, mu=mu) <= delta:
        return 0.0
    return boundary(lambda epsilon: gaussian_delta(epsilon=epsilon, mu=mu) > delta)[1]


def epsilon_at(delta: float, cost: Cost) -> float:
    """Return an epsilon at `delta` that follows from a cost's two numbers, or infinity."""
    if delta == 0.0:
        return cost.epsilon
    return min(cost.epsilon, gaussian_epsilon(mu=cost.mu, delta=delta))


def epsilon_left(cap: Cap, spent: Cost) -> tuple[float, float]:
    """Return the largest epsilon of one more pure release, and of one more Gaussian at the delta.

    They differ, for each currency counts alone: a pure release takes up more of `mu` than a
    Gaussian one of the same epsilon, and after a Gaussian one only `mu` can hold a pure one.
    """
    mu = math.sqrt(max(0.0, cap.mu**2 - spent.mu**2))
    by_mu, _ = boundary(lambda epsilon: pure_mu(epsilon=epsilon) <= mu)
    pure = max(0.0, cap.epsilon - spent.epsilon, by_mu)
    return pure, 0.0 if cap.is_pure else gaussian_epsilon(mu=mu, delta=cap.delta)


def noise_for(
    mechanism: Mechanism,
    *,
    sensitivity: float,
    cost: Cost,
    population: int,
    dropouts: int,
    colluders: int,
) -> DiscreteGaussianNoise | DiscreteLaplaceNoise:
    """Return the noise with which a release costs at most `cost`, by Theorem 1.

    Gaussian: each client's scale is sensitivity / (mu sqrt(N - D - C - 1)), L2. Laplace: the
    total's is sensitivity / epsilon, L1; the clients' parts divide it by N - D - C - 1.

    Raises:
        ValueError: `sensitivity` or the cost is not positive and finite, the noise would be too
            large to draw, or nobody would add any.
    """
    require_positive("sensitivity", sensitivity)
    parties = effective_noise_clients(population=population, dropouts=dropouts, colluders=colluders)
    if mechanism == "discrete_gaussian":
        require_positive("mu", cost.mu)
        scale = sensitivity / (cost.mu * math.sqrt(parties))
    else:
        require_positive("epsilon", cost.epsilon)
        scale = sensitivity / cost.epsilon
    try:
        return NOISES[mechanism](scale=scale * (1.0 + PRICE_MARGIN) * (1.0 + 1e-14))
    except pydantic.ValidationError:
        raise ValueError(
            "the noise would be too large to draw: allow a larger epsilon, or ask for fewer "
            "columns or records per client"
        ) from None


class Participation:
    """The rounds of a job so far, by client of its population."""

    def __init__(self, population: BitMap) -> None:
        """Begin before the first round of a job that these clients joined."""
        self.population = population
        self._clients = np.asarray(population.to_array())  # ascending
        self.rounds = np.zeros(len(self._clients), dtype=np.int64)
        """How many rounds asked each client, shape (population,), in ascending order."""
        self._paid = Balances()  # by place in the population

    def add(self, clients: BitMap, cost: Cost) -> None:
        """Add a round that asks `clients`, at `cost` to each of them.

        Raises:
            ValueError: one of them is not of the population.
        """
        places = self.places(clients)
        self.rounds[places] += 1
        self._paid.add(BitMap(places.astype(np.uint32)), cost)

    def places(self, clients: BitMap) -> NDArray[np.int64]:
        """Return where in the population, in ascending order, these clients are.

        Raises:
            ValueError: one of them is not of the population.
        """
        if not clients.issubset(self.population):
            raise ValueError("a round asks clients who are not of the job's population")
        return np.searchsorted(self._clients, np.asarray(clients.to_array())).astype(np.int64)

    def largest(self, clients: BitMap | None = None) -> Cost:
        """Return the most that any of `clients`, or of all, pays for the rounds so far.

        mu and epsilon each are the largest that one of them pays.
        """
        places = self.places(self.population if clients is None else clients)
        return self._paid.largest(BitMap(places.astype(np.uint32)))


@dataclass(frozen=True, kw_only=True)
class Release:
    """A round's noise and what it was counted on; `cohort_size` once it was summed.

    Of a lost round there is no cohort. `is_abandoned` if the aggregator signed that it released
    nothing, which counts against those who see no more than the public: only the aggregator
    releases sums to them. Whoever sees partial sums or shares may have added them up all the same.
    """

    noise: DiscreteGaussianNoise | DiscreteLaplaceNoise
    design: NoiseDesign
    population: int
    dropouts: int
    colluders: int
    smallest_answer: int = 1  # slots of the data holder that is asked for the fewest
    cohort_size: int | None = None
    is_lost: bool = False
    is_abandoned: bool = False

    def __post_init__(self) -> None:
        smallest = self.population - self.dropouts
        if self.cohort_size is not None and not smallest <= self.cohort_size <= self.population:
            raise ValueError("such a cohort is never released")

    def promised(self, *, colluders: int) -> Cost:
        """Return the cost in the worst cohort that may be summed, against so many colluders."""
        smallest = self.population - self.dropouts
        return price_with(self.noise, self.design.sensitivity, smallest - colluders - 1)

    def bought(self, *, colluders: int, in_public: bool) -> Cost | None:
        """Return the cost with the noise really present; None if no cohort is known.

        A lost round costs what it promised, or nothing `in_public` if it is abandoned.
        """
        if self.is_lost:
            is_free = in_public and self.is_abandoned
            return NOTHING if is_free else self.promised(colluders=colluders)
        if self.cohort_size is None:
            return None
        return price_with(self.noise, self.design.sensitivity, self.cohort_size - colluders - 1)

    def own(self) -> Cost | None:
        """Return what the noise of one data holder's answer buys, of the smallest.

        Laplace parts, mostly 0, buy nothing unless there are as many as the price counts on. Nor is
        anything stated of a Gaussian that so few make too coarse for its price.
        """
        parties, own = self.population - self.dropouts - self.colluders - 1, self.smallest_answer
        if self.noise.mechanism == "discrete_laplace" and own < parties:
            return None
        cost = price_with(self.noise, self.design.sensitivity, own)
        is_fine = self.noise.is_fine_enough(self.design, parties=own, mu=cost.mu)
        return cost if is_fine else None


def coalitions(*, nodes: int, committee: int, opening: int) -> dict[int, float]:
    """Return how likely so many Compute nodes, drawn at random, open a given data holder's answer.

    Of its committee of `committee` nodes `opening` are needed. The numbers are a few: the smallest
    that can open an answer, and larger. On average they see so large a part of all answers.
    """
    sizes = sorted({opening, min(2 * opening, nodes), max(opening, nodes // 3)})
    return {
        size: sum(
            comb(committee, among) * comb(nodes - committee, size - among)
            for among in range(opening, min(committee, size) + 1)
        )
        / comb(nodes, size)
        for size in sizes
    }


def coalition_in_words(size: int, chance: float) -> str:
    """Say what `coalitions` returns of one number of nodes."""
    return f"{size} Compute nodes drawn at random open a data holder's answer with {chance:.3g}"


class PrivacySpent(Model):
    """The most that a job cost any client of its population; delta is 0 where epsilon is pure."""

    epsilon: Loss
    delta: Delta
    mu: Loss

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:.4g} at delta {self.delta:.3g} for each client"


@dataclass(frozen=True)
class Statement:
    """One adversary's view of a job's rounds, and the most that it costs any client.

    `promised` holds in every cohort that might have been released, `bought` in those that were:
    None where nothing is promised, or a cohort is not known. The epsilons are at the job's delta.
    """

    adversary: str
    sees: str
    promised: PrivacySpent | None
    bought: PrivacySpent | None


def statements(
    releases: Sequence[Release],
    *,
    delta: float,
    nodes: int,
    needed: int,
    committee: int | None = None,
    asked: Sequence[BitMap] | None = None,
) -> tuple[Statement, ...]:
    """State a job's price against each adversary; `needed` of `nodes` nodes open a sum.

    With committees it is `needed` of a `committee` that open the answers shared in it.

    `asked` are the clients whom each round asked: the price is that of the client that pays most.
    Without it every round asked everybody.
    """
    everybody = BitMap([0])
    populations = asked or [everybody] * len(releases)
    most = max(release.colluders for release in releases)
    found = []
    public = "the public"
    for adversary, sees, colluders in (
        (public, "the released sums, what was signed, and who took part", 0),
        ("the trainer", "the same, and the partial sums that add up to them", 0),
        ("one Compute node", "the same, and of each client one share, which is random", 0),
        (
            f"{needed - 1} of {nodes} Compute nodes, with {most} clients of each cohort",
            "the same, their shares, which are random together, and the clients' own noise",
            most,
        ),
    ):
        promised = [release.promised(colluders=colluders) for release in releases]
        bought = [
            release.bought(colluders=colluders, in_public=adversary == public)
            for release in releases
        ]
        found.append(_stated(adversary, sees, promised, bought, populations, delta))
    own = [release.own() for release in releases]
    every = f"{needed} or more of {nodes} Compute nodes"
    least = min(release.smallest_answer for release in releases)
    what = f"each data holder's noisy sum, with the noise of its slots, {least:,} at least"
    if committee is not None:
        every = f"{needed} or more Compute nodes of its own committee of {committee}"
        what = (
            f"its data holder's noisy sum, with the noise of its slots, {least:,} at least; "
            "against others' clients those of that committee count as colluders"
        )
    return (*found, _stated(every, what, own, own, populations, delta))


def _stated(
    adversary: str,
    sees: str,
    promised: Sequence[Cost | None],
    bought: Sequence[Cost | None],
    asked: Sequence[BitMap],
    delta: float,
) -> Statement:
    def together(costs: Sequence[Cost | None]) -> PrivacySpent | None:
        participation = Participation(BitMap.union(*asked))
        for clients, cost in zip(asked, costs, strict=True):
            if cost is None:
                return None
            participation.add(clients, cost)
        largest = participation.largest()
        return PrivacySpent(epsilon=epsilon_at(delta, largest), delta=delta, mu=largest.mu)

    return Statement(adversary, sees, together(promised), together(bought))
