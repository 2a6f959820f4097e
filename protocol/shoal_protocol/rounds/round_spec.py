"""The round spec: what the trainer asks, of whom, with how much noise, by when; and its checks.

Every party checks a spec against itself, the manifest and the policy. Whoever has the job request
checks that the round is one of its job. A data holder answers for all of its slots in the
population at once, so whoever counts answers counts the slots behind them.
"""

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import Cap, Cost, price_with
from shoal_protocol.privacy.mechanisms import (
    Noise,
    NoisePart,
    effective_noise_clients,
    fits_modulus,
)
from shoal_protocol.queries import NoiseDesign, Query
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.trust.policy import LARGEST_POPULATION, Policy, passed_message, too_far_message
from shoal_protocol.trust.roster import Roster
from shoal_protocol.wire.documents import TrainerDocument
from shoal_protocol.wire.encoding import (
    Base64,
    Clients,
    Count,
    Digest,
    Loss,
    Name,
    Place,
    Timestamp,
    decode_clients,
)
from shoal_protocol.wire.errors import RefusedSpec


@dataclass(frozen=True)
class AskedHolders:
    """Data holders by index, and the slots of each that a round asks."""

    holders: BitMap
    counts: npt.NDArray[np.int64]  # of each holder's slots, shape (holders,), by ascending index
    _slots: npt.NDArray[np.uint32] = field(repr=False)  # of the population, ascending
    _owners: npt.NDArray[np.uint32] = field(repr=False)  # of each slot

    @staticmethod
    def of(population: BitMap, roster: Roster) -> "AskedHolders":
        """Return whom a round asks that has this population.

        Raises:
            UnknownHolder: a slot of it was never given.
        """
        slots = np.asarray(population.to_array(), np.uint32)
        owners = roster.owners_of(slots)
        counts = np.bincount(owners).astype(np.int64)
        holders = np.flatnonzero(counts)
        return AskedHolders(BitMap(holders), counts[holders], slots, owners)

    def __len__(self) -> int:
        """Return how many data holders are asked."""
        return len(self.holders)

    def count(self, holders: BitMap) -> int:
        """Return how many slots these data holders are asked for; all of them are asked."""
        if len(holders) == len(self.holders):
            return len(self._slots)
        asked = np.asarray(self.holders.to_array())
        return int(self.counts[np.isin(asked, np.asarray(holders.to_array()))].sum())

    def largest(self, holders: int) -> int:
        """Return how many slots so many data holders are asked for at most."""
        return int(np.sort(self.counts)[::-1][:holders].sum())

    @property
    def smallest(self) -> int:
        """Return the fewest slots that a data holder is asked for."""
        return int(self.counts.min())

    def slots_of(self, holders: BitMap) -> BitMap:
        """Return the slots that these data holders are asked for."""
        if len(holders) == len(self.holders):
            return BitMap(self._slots)
        return BitMap(self._slots[np.isin(self._owners, np.asarray(holders.to_array()))])


LARGEST_DIMENSION: Final = 1_000_000


class RoundSpec(TrainerDocument):
    """Trainer -> everyone. Its digest is the round's id, so another spec is another round."""

    most_values: ClassVar[int] = 1 << 18  # a basis of 512 coordinates has 131,328 numbers

    kind: Literal["round_spec"] = "round_spec"
    job: Digest
    number: Count  # counts the job's rounds from 0
    query: Query
    dimension: int = Field(ge=1, le=LARGEST_DIMENSION)
    sharing: Sharing
    noise: Noise
    population: Base64  # canonical Roaring bitmap of client indices
    population_size: Annotated[Clients, Field(ge=2)]
    dropouts: Clients
    colluders: Clients
    minimum_cohort: Annotated[Clients, Field(ge=2)]
    smallest_answer: Place  # fewest slots that the round asks of a data holder
    compute_nodes: tuple[Name, ...] = Field(min_length=2, max_length=255)
    opened_at: Timestamp
    deadline: Timestamp
    proceed_at: Timestamp  # from here on `threshold` nodes suffice, and the others are not awaited
    give_up_at: Timestamp
    mu: Loss  # the round's cost for each client of the population,
    epsilon: Loss | None  # and as pure epsilon

    def clients(self) -> BitMap:
        """Return the population.

        Raises:
            MalformedDocument: it is not a canonical bitmap.
        """
        return decode_clients(self.population)

    @property
    def threshold(self) -> int:
        """Return how many Compute nodes' partial sums give the round's total, at least."""
        return self.sharing.needed(len(self.compute_nodes))

    @property
    def opening(self) -> int:
        """Return how many Compute nodes' shares open a data holder's answer."""
        return self.sharing.opening(len(self.compute_nodes))

    @property
    def cost(self) -> Cost:
        """Return what the spec states that the round costs each client of its population."""
        return Cost.stated(self.mu, self.epsilon)

    @property
    def design(self) -> NoiseDesign:
        """Return how the noise is spread, and the sensitivity against it."""
        return self.query.design(self.noise.mechanism)

    @property
    def parties(self) -> int:
        """Return N - D - C - 1, how many clients' noise counts.

        Raises:
            ValueError: nobody's would.
        """
        return effective_noise_clients(
            population=self.population_size, dropouts=self.dropouts, colluders=self.colluders
        )

    def noise_blocks(self) -> list[tuple[int, NoisePart]]:
        """Return (coordinates, one client's noise on each) of every block, in order."""
        return [
            (block.coordinates, self.noise.part(block.relative_scale, parties=self.parties))
            for block in self.design.blocks
        ]


# A roster of 10,000,000 clients takes 8 KiB of bitmap for each 65,536 indices, 1.6 MiB in base64;
# 512 columns with the longest names take 180 KiB; a basis of 512 coordinates, whose numbers have
# six digits, takes 1.7 MiB, and one of 251 0.4 MiB.
LARGEST_SPEC_BYTES: Final = 4 << 20
# Everyone recomputes the declared cost. What may be missing, relative, is rounding, which
# `PRICE_MARGIN` covers: what is charged is never below what the noise costs.
_LEAST_OF_COST: Final = 1.0 - 4e-11
_MOST_OF_COST: Final = 1.0 + 1e-9


def check_spec(spec: RoundSpec, consortium: Consortium, *, now: datetime) -> None:
    """Refuse a spec that contradicts itself, the manifest or its policy.

    Every party does this by itself, before it stores or sends anything. That the trainer signed
    it is `Consortium.verify`'s to check.

    Raises:
        RefusedSpec: the detail says what to mend.
        MalformedDocument: the population is not a canonical bitmap.
    """
    maximum_seconds = consortium.manifest.policy.maximum_round_seconds
    if spec.deadline <= now:
        raise RefusedSpec(passed_message("the deadline", spec.deadline, now))
    check_terms(spec, consortium.manifest)
    if (spec.opened_at - now).total_seconds() > maximum_seconds:
        most = f"the policy's maximum_round_seconds, {maximum_seconds}"
        # services would keep it all the time
        raise RefusedSpec(too_far_message("opened_at", spec.opened_at, now, most))
    clients = spec.clients()
    if not clients.issubset(consortium.roster.enrolled_set):
        raise RefusedSpec("the population holds a client that is not enrolled")
    check_holders(AskedHolders.of(clients, consortium.roster), consortium.manifest.policy, spec)


def check_terms(spec: RoundSpec, manifest: Manifest) -> None:
    """Refuse a spec by what needs neither a clock nor a roster: what anyone can check later.

    Raises:
        RefusedSpec, MalformedDocument: as `check_spec`.
    """
    policy = manifest.policy
    _check_parties(spec, manifest)
    if reason := policy.refusal(
        sharing=spec.sharing,
        nodes=len(spec.compute_nodes),
        colluders=spec.colluders,
        mechanism=spec.noise.mechanism,
        queries=[spec.query.name],
    ):
        raise RefusedSpec(reason)
    _check_times(spec, policy.maximum_round_seconds)
    if spec.dimension != spec.query.dimension:
        raise RefusedSpec("dimension is not that of the query")
    _check_noise(spec, policy.cap)


def check_holders(asked: AskedHolders, policy: Policy, spec: RoundSpec) -> None:
    """Refuse a round whose noise does not suffice against the largest data holders that it asks.

    A data holder subtracts its own records and its own noise from a published sum. Whatever cohort
    is released holds at least `minimum_cohort` slots, and these data holders at most `colluders` of
    them: the others' noise is that of N - D - C - 1 slots at least, as it was priced.

    Raises:
        RefusedSpec: the detail says what to mend.
    """
    if len(asked) < policy.minimum_holders:
        raise RefusedSpec(f"a round asks at least {policy.minimum_holders} data holders")
    if spec.smallest_answer != asked.smallest:
        raise RefusedSpec("smallest_answer is not the fewest slots that it asks of a data holder")
    if spec.colluders < (least := asked.largest(policy.colluding_holders)):
        raise RefusedSpec(
            f"colluders must be at least {least}, the slots of the {policy.colluding_holders} "
            "largest data holders that the round asks"
        )


def _check_times(spec: RoundSpec, maximum_seconds: int) -> None:
    if not spec.opened_at < spec.deadline < spec.give_up_at:
        raise RefusedSpec("opened_at, deadline and give_up_at must follow one another")
    if (spec.give_up_at - spec.opened_at).total_seconds() > maximum_seconds:
        raise RefusedSpec(f"the round may last at most {maximum_seconds} seconds")
    if spec.sharing.scheme == "additive":
        if spec.proceed_at != spec.give_up_at:
            raise RefusedSpec("proceed_at must be give_up_at where all Compute nodes are needed")
    elif not spec.deadline < spec.proceed_at < spec.give_up_at:
        raise RefusedSpec("proceed_at must lie between deadline and give_up_at")


def _check_parties(spec: RoundSpec, manifest: Manifest) -> None:
    if spec.compute_nodes != tuple(node.name for node in manifest.compute_nodes):
        raise RefusedSpec("compute_nodes must be the manifest's, in its order")
    if spec.population_size > LARGEST_POPULATION:
        raise RefusedSpec(f"a population has at most {LARGEST_POPULATION} clients")
    if len(spec.clients()) != spec.population_size:
        raise RefusedSpec("population_size is not the number of clients in the population")
    if spec.minimum_cohort != spec.population_size - spec.dropouts:
        raise RefusedSpec("minimum_cohort must be population_size less dropouts")
    if spec.minimum_cohort < manifest.policy.minimum_cohort:
        raise RefusedSpec(f"minimum_cohort must be at least {manifest.policy.minimum_cohort}")


def _check_noise(spec: RoundSpec, cap: Cap) -> None:
    try:
        parties = spec.parties
    except ValueError as error:
        raise RefusedSpec("too few clients for so many dropouts and colluders") from error
    if not spec.noise.is_fine_enough(spec.design, parties=parties, mu=spec.mu):
        raise RefusedSpec("the noise is too small against the grid: raise the query's grid_bits")
    cost = price_with(spec.noise, spec.design.sensitivity, parties)
    if not _is_price(spec.mu, cost.mu):
        raise RefusedSpec("mu is not what the query and its noise cost")
    if not _is_price(spec.cost.epsilon, cost.epsilon):
        raise RefusedSpec("epsilon is not what the query and its noise cost")
    if not (cap.allows(cost) and cap.allows(spec.cost)):
        raise RefusedSpec("the noise is too little for the policy's epsilon and delta")
    tail = max(
        part.tail(clients=spec.population_size, dimension=spec.dimension)
        for _, part in spec.noise_blocks()
    )
    if not fits_modulus(
        largest_value=spec.query.largest_value,
        population=spec.population_size,
        tail=tail,
        modulus_bits=spec.sharing.modulus_bits,
    ):
        raise RefusedSpec("the sum could overflow the modulus")


def _is_price(declared: float, computed: float) -> bool:
    if math.isinf(computed):
        return math.isinf(declared)
    return _LEAST_OF_COST * computed <= declared <= _MOST_OF_COST * computed
