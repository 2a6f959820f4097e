"""What each adversary sees of a job, and what that costs: the prices are `accounting`'s.

By Theorem 1 of Heikkilä et al. (2017, arXiv:1703.01106) a price rests on the noise of the clients
that did not collude, less the protected one. Given the cohort that was really summed, more of them
may have been there than was counted on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyroaring import BitMap

from shoal_protocol.accounting import NOTHING, Cost, epsilon_of, price_with
from shoal_protocol.hidden_participation import HiddenParticipation
from shoal_protocol.mechanisms import DiscreteGaussianNoise, DiscreteLaplaceNoise
from shoal_protocol.participation import Participation


@dataclass(frozen=True, kw_only=True)
class Release:
    """A round's noise and what it was counted on; `cohort_size` once it was summed.

    `is_lost` if it never will be: the round released nothing.
    """

    noise: DiscreteGaussianNoise | DiscreteLaplaceNoise
    sensitivity: float  # in the mechanism's norm
    population: int
    dropouts: int
    colluders: int
    cohort_size: int | None = None
    is_lost: bool = False
    hidden: HiddenParticipation | None = None

    def __post_init__(self) -> None:
        smallest = self.population - self.dropouts
        if self.cohort_size is not None and not smallest <= self.cohort_size <= self.population:
            raise ValueError("such a cohort is never released")

    def promised(self, *, colluders: int) -> Cost:
        """Return the cost in the worst cohort that may be summed, against so many colluders."""
        smallest = self.population - self.dropouts
        return price_with(self.noise, self.sensitivity, smallest - colluders - 1)

    def bought(self, *, colluders: int) -> Cost | None:
        """Return the cost with the noise really present; None if no cohort is known."""
        if self.is_lost:
            return NOTHING
        if self.cohort_size is None:
            return None
        return price_with(self.noise, self.sensitivity, self.cohort_size - colluders - 1)

    def own(self) -> Cost | None:
        """Return what one client's own noise buys; a Laplace part, mostly 0, buys nothing."""
        is_gaussian = self.noise.mechanism == "discrete_gaussian"
        return price_with(self.noise, self.sensitivity, 1) if is_gaussian else None


@dataclass(frozen=True)
class Statement:
    """What one adversary sees of a job's rounds, and what that costs each client at most.

    `promised` holds in every cohort that might have been released, `bought` in those that were:
    None where nothing is promised, or a cohort is not known. The epsilons are at the job's delta.
    """

    adversary: str
    sees: str
    promised: Cost | None
    promised_epsilon: float | None
    bought: Cost | None
    bought_epsilon: float | None


def statements(
    releases: Sequence[Release],
    *,
    delta: float,
    nodes: int,
    needed: int,
    asked: Sequence[BitMap] | None = None,
) -> tuple[Statement, ...]:
    """State a job's price against each adversary; `needed` of `nodes` nodes open a sum.

    `asked` are the clients whom each round asked: the price is that of the client that pays most.
    Without it every round asked everybody. Rounds with hidden participation cost less together, but
    to who sees each client's own contribution, and its coin by it.
    """
    everybody = BitMap([0])
    populations = asked or [everybody] * len(releases)
    most = max(release.colluders for release in releases)
    found = []
    for adversary, sees, colluders in (
        ("the public", "the released sums, what was signed, and who took part", 0),
        ("the trainer", "the same, and the partial sums that add up to them", 0),
        ("one Compute node", "the same, and of each client one share, which is random", 0),
        (
            f"{needed - 1} of {nodes} Compute nodes, with {most} clients of each cohort",
            "the same, their shares, which are random together, and the clients' own noise",
            most,
        ),
    ):
        promised: list[Cost | None] = [
            release.promised(colluders=colluders) for release in releases
        ]
        bought = [release.bought(colluders=colluders) for release in releases]
        if (hidden := releases[0].hidden) is not None:
            sees = sees.replace("took part", "answered, but not whose records count")
            promised = _of_all(promised, hidden)
            bought = _of_all(bought, hidden.model_copy(update={"rounds": _summed(releases)}))
        found.append(_stated(adversary, sees, promised, bought, populations, delta))
    own = [release.own() for release in releases]
    every = f"{needed} or more of {nodes} Compute nodes"
    what = "each client's own noisy contribution"
    return (*found, _stated(every, what, own, own, populations, delta))


def _of_all(costs: Sequence[Cost | None], hidden: HiddenParticipation) -> list[Cost | None]:
    """Return what hidden rounds cost, of which each would cost so much: the first pays for all."""
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return [None] * len(costs)
    dearest = max(known, key=lambda cost: cost.mu)
    whole = hidden.whole(dearest) if dearest.mu else NOTHING
    return [whole, *[NOTHING] * (len(costs) - 1)]


def _summed(releases: Sequence[Release]) -> int:
    return max(1, sum(not release.is_lost for release in releases))


def _stated(
    adversary: str,
    sees: str,
    promised: Sequence[Cost | None],
    bought: Sequence[Cost | None],
    asked: Sequence[BitMap],
    delta: float,
) -> Statement:
    def together(costs: Sequence[Cost | None]) -> tuple[Cost | None, float | None]:
        participation = Participation(BitMap.union(*asked))
        for clients, cost in zip(asked, costs, strict=True):
            if cost is None:
                return None, None
            participation.add(clients, cost)
        largest = participation.largest()
        return largest, epsilon_of([largest], delta=delta)

    return Statement(adversary, sees, *together(promised), *together(bought))
