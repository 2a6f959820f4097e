"""The distinguishing game, many runs at once, played with the code of all parties.

A run is a round: clients encode their records and draw noise (`shoal_holder`), split the answer
(`shoal_protocol`), Compute nodes add shares (`shoal_compute`), and the total is put together from
their sums. Runs lie one behind the other in long vectors, for which that code is the same as for
short ones; nothing of it is written again here. One client's records differ between the worlds.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
from nacl.utils import random

from audit.claims import Claim
from audit.neighbours import Floats, worst_neighbours
from shoal_compute.shares import Packed
from shoal_compute.summing import add_up
from shoal_holder.contribution import draw_noise
from shoal_holder.noise import NoiseSampler, exact_noise
from shoal_protocol.privacy.job_costs import gaussian_epsilon
from shoal_protocol.queries import NoiseDesign
from shoal_protocol.rounds.round_audit import release_of
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.shares import RandomBytes, Share
from shoal_protocol.wire.encoding import Int64Vector, Uint64Vector

VICTIM: Final = 0
"""The data holder of the client whose records differ; the colluders are the next ones."""

_NOT_REACHED: Final = 1e-9


class Adversary(StrEnum):
    """Who guesses; all know the records of everybody else, and both candidates of the victim."""

    PUBLIC = "public"
    """Sees the total, as do the trainer and the aggregator: their partial sums say no more."""

    COALITION = "coalition"
    """M - 1 Compute nodes and data holders with C slots: sees their shares, the total, and what
    they sent, their own noise with it."""

    WORST_CASE = "worst case"
    """The coalition with one more client, which reads the sum and subtracts its own noise: of
    N - D - C - 1 clients' noise the claim is made. The game subtracts the victim's noise instead,
    which has the same distribution, so that nobody else's size matters."""


@dataclass(frozen=True, kw_only=True)
class Game:
    """A round to be played: the spec as the clients follow it, and what each adversary may learn.

    `sizes` are the slots of each data holder in the cohort, one each if it is empty; the victim's
    has one. A data holder has the sampler of `samplers`, or the real one. With `sends` above 1
    everybody's answers are made that many times, and the adversaries see all totals.
    """

    spec: RoundSpec
    claims: Mapping[Adversary, Claim]
    samplers: Mapping[int, NoiseSampler] = field(default_factory=dict)
    sends: int = 1
    sizes: tuple[int, ...] = ()

    @classmethod
    def honest(cls, spec: RoundSpec, *, delta: float, sizes: tuple[int, ...] = ()) -> "Game":
        """Return the round in which all follow the spec, and its prices as documents state them."""
        release = release_of(spec)
        colluders = {Adversary.PUBLIC: 0}
        claims = {
            adversary: Claim.of(
                release.promised(colluders=colluders.get(adversary, spec.colluders)), delta=delta
            )
            for adversary in Adversary
        }
        return cls(spec=spec, claims=claims, sizes=sizes)

    @property
    def claim(self) -> Claim:
        """Return the price that the spec states, which is the worst case's."""
        return self.claims[Adversary.WORST_CASE]

    @property
    def colluders(self) -> range:
        """Return the data holders in league with the adversary: as many as have C slots."""
        if not self.sizes:
            return range(1, 1 + self.spec.colluders)
        slots = itertools.accumulate(self.sizes[1:])
        return range(1, 1 + sum(each <= self.spec.colluders for each in slots))

    @property
    def cohort(self) -> range:
        """Return the data holders whose answers are summed: as few slots as may be."""
        return range(len(self.sizes) or self.spec.minimum_cohort)

    def slots(self, holder: int) -> int:
        """Return how many slots a data holder answers for."""
        return self.sizes[holder] if self.sizes else 1

    def sampler(self, holder: int) -> NoiseSampler:
        """Return what a data holder draws its noise with."""
        return self.samplers.get(holder, exact_noise)

    def true_epsilon(self, adversary: str) -> float | None:
        """Return what an honest round costs against `adversary`; None if it is not known."""
        cohort = sum(map(self.slots, self.cohort))
        clients = cohort - sum(map(self.slots, self.colluders))
        if adversary == Adversary.WORST_CASE:
            return self.claim.epsilon
        if not self.claim.delta:
            return None
        noises = cohort if adversary == Adversary.PUBLIC else clients
        mu = self.claim.mu * math.sqrt(self.spec.parties / noises)
        return gaussian_epsilon(mu=mu, delta=self.claim.delta)

    def play(self, world: int, runs: int) -> dict[str, Floats]:
        """Return each adversary's statistic, as `play` does."""
        return {adversary: found for adversary, found in play(self, world, runs).items()}


def play(game: Game, world: int, runs: int) -> dict[Adversary, Floats]:
    """Return each adversary's statistic, shape (runs,), with `world`'s records (0 or 1).

    Likelihood ratios are increasing in it (Gaussian noise, or a difference in one coordinate).

    Raises:
        ValueError: the neighbours do not attain the declared sensitivity.
    """
    statistic = _Statistic.of(game)
    spec, known = game.spec, game.spec.query.encode(_others(game))
    strangers = sum(map(game.slots, game.cohort)) - 1
    friends = sum(map(game.slots, game.colluders))
    found: dict[Adversary, list[Floats]] = {adversary: [] for adversary in Adversary}
    for _ in range(game.sends):
        noises = {
            holder: draw_noise(spec, game.slots(holder), game.sampler(holder), draws=runs)
            for holder in game.cohort
        }
        shares = {
            holder: answer(
                spec,
                holder,
                _records(game, holder, world),
                noise + (game.slots(holder) - 1) * known,  # the other slots' records
            )
            for holder, noise in noises.items()
        }
        total = total_of(spec, list(shares.values()), runs)
        of_friends = total_of(spec, [shares[holder] for holder in game.colluders], runs)
        innocent = total - of_friends - (strangers - friends) * known
        found[Adversary.PUBLIC].append(statistic(total - strangers * known))
        found[Adversary.COALITION].append(statistic(innocent))
        found[Adversary.WORST_CASE].append(statistic(innocent - noises[VICTIM]))
    return {adversary: np.mean(each, axis=0) for adversary, each in found.items()}


def answer(
    spec: RoundSpec,
    client: int,
    records: Floats,
    noise: Int64Vector,
    *,
    random_bytes: RandomBytes = random,
) -> list[Share]:
    """Return a client's shares, one for each node, of all runs at once; `noise` is (runs, d)."""
    return spec.sharing.split(
        spec.sharing.encode((spec.query.encode(records) + noise).ravel()),
        holder=client,
        nodes=len(spec.compute_nodes),
        random_bytes=random_bytes,
    )


def total_of(spec: RoundSpec, shares: Sequence[Sequence[Share]], runs: int) -> Int64Vector:
    """Return the totals, shape (runs, d), of some clients' shares, added up node by node.

    Raises:
        ValueError: the nodes' sums contradict each other.
    """
    nodes = len(spec.compute_nodes)
    sums = {node: node_sum(spec, [each[node] for each in shares], runs) for node in range(nodes)}
    combined = summation.combine(spec.sharing, sums, nodes=nodes)
    if combined is None or combined.wrong:
        raise ValueError("the partial sums contradict each other")
    return summation.decode(spec.sharing, combined.total).reshape(runs, spec.dimension)


def node_sum(spec: RoundSpec, shares: Sequence[Share], runs: int) -> Uint64Vector:
    """Return what a Compute node adds up, shape (runs * d,)."""
    packed = [Packed(each.kind, 1, each.payload) for each in shares]
    return add_up(spec.sharing, packed, runs * spec.dimension)


def _records(game: Game, client: int, world: int) -> Floats:
    return worst_neighbours(game.spec.query)[world] if client == VICTIM else _others(game)


def _others(game: Game) -> Floats:
    """Return the records of everybody but the victim; they do not matter, being known."""
    return worst_neighbours(game.spec.query)[1]


@dataclass(frozen=True)
class _Statistic:
    """Projects what is left of a total on the difference of the two worlds."""

    first: Int64Vector
    weights: Floats

    @classmethod
    def of(cls, game: Game) -> "_Statistic":
        query = game.spec.query
        design = game.spec.design
        first, second = (query.encode(records) for records in worst_neighbours(query))
        relative = _relative_scales(design)
        difference = (second - first) / relative
        if game.claim.delta:
            attained = float(np.linalg.norm(difference))
        else:
            attained = float(np.sum(np.abs(difference)))
            if np.count_nonzero(difference) > 1:
                raise ValueError("with Laplace noise the worlds must differ in one coordinate")
        if attained < design.sensitivity * (1.0 - _NOT_REACHED):
            raise ValueError("the neighbours do not attain the declared sensitivity")
        return cls(first, difference / relative / attained * game.claim.distance / attained)

    def __call__(self, left: Int64Vector) -> Floats:
        statistic: Floats = (left - self.first) @ self.weights
        return statistic


def _relative_scales(design: NoiseDesign) -> Floats:
    return np.repeat(
        [block.relative_scale for block in design.blocks],
        [block.coordinates for block in design.blocks],
    )
