"""The round spec: what the trainer asks, of whom, with how much noise, by when."""

import math
from datetime import datetime
from typing import ClassVar, Final, Literal

from pydantic import Field
from pyroaring import BitMap

from shoal_protocol.accounting import Cap, Cost, noise_for, price
from shoal_protocol.adversaries import Release
from shoal_protocol.documents import BoundDocument, Role
from shoal_protocol.encoding import Base64, Digest, Name, Timestamp, decode_clients, encode_clients
from shoal_protocol.errors import RefusedSpec
from shoal_protocol.manifest import Consortium, Manifest
from shoal_protocol.mechanisms import Noise, NoisePart, effective_noise_clients, fits_modulus
from shoal_protocol.queries import Mechanism, NoiseDesign, Query
from shoal_protocol.schemes import Sharing

LARGEST_DIMENSION: Final = 1_000_000
LARGEST_POPULATION: Final = 2**20
# a roster of 10,000,000 clients takes 8 KiB of bitmap for each 65,536 indices, 1.6 MiB in base64;
# 512 columns with the longest names take 180 KiB.
LARGEST_SPEC_BYTES: Final = 2 << 20
# Everyone recomputes the declared cost. What may be missing, relative, is rounding, which
# `PRICE_MARGIN` covers: what is charged is never below what the noise costs.
_LEAST_OF_COST: Final = 1.0 - 4e-11
_MOST_OF_COST: Final = 1.0 + 1e-9


class RoundSpec(BoundDocument):
    """Trainer -> everyone. Its digest is the round's id, so another spec is another round."""

    signed_by: ClassVar[Role] = Role.TRAINER

    kind: Literal["round_spec"] = "round_spec"
    job: Digest
    number: int = Field(ge=0)  # counts the job's rounds from 0
    query: Query
    dimension: int = Field(ge=1, le=LARGEST_DIMENSION)
    modulus_bits: Literal[61, 64]  # as `sharing` has it
    sharing: Sharing
    noise: Noise
    population: Base64  # canonical Roaring bitmap of client indices
    population_size: int = Field(ge=2)
    dropouts: int = Field(ge=0)
    colluders: int = Field(ge=0)
    minimum_cohort: int = Field(ge=2)
    compute_nodes: tuple[Name, ...] = Field(min_length=2)
    opened_at: Timestamp
    deadline: Timestamp
    proceed_at: Timestamp  # from here on `threshold` nodes suffice, and the others are not awaited
    give_up_at: Timestamp
    mu: float = Field(gt=0)  # the round's cost for each client of the population,
    epsilon: float | None = Field(gt=0)  # and as pure epsilon, where the noise has one

    def clients(self) -> BitMap:
        """Return the population.

        Raises:
            MalformedDocument: it is not a canonical bitmap.
        """
        return decode_clients(self.population)

    @property
    def threshold(self) -> int:
        """Return how many Compute nodes' partial sums give the round's total."""
        return self.sharing.needed(len(self.compute_nodes))

    @property
    def cost(self) -> Cost:
        """Return what the round costs each client of its population."""
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

    def release(self, *, cohort_size: int | None = None) -> Release:
        """Return what its price depends on, `cohort_size` once it was summed."""
        return Release(
            noise=self.noise,
            sensitivity=self.design.sensitivity,
            population=self.population_size,
            dropouts=self.dropouts,
            colluders=self.colluders,
            cohort_size=cohort_size,
        )

    def noise_blocks(self) -> list[tuple[int, NoisePart]]:
        """Return (coordinates, one client's noise on each) of every block, in order."""
        return [
            (block.coordinates, self.noise.part(block.relative_scale, parties=self.parties))
            for block in self.design.blocks
        ]


def make_spec(
    *,
    manifest: Consortium,
    job: str,
    number: int,
    query: Query,
    mechanism: Mechanism,
    cost: Cost,
    population: BitMap,
    dropouts: int,
    colluders: int,
    opened_at: datetime,
    deadline: datetime,
    give_up_at: datetime,
    sharing: Sharing,
) -> RoundSpec:
    """Make the spec of a round that costs each client at most `cost`, noise by Theorem 1.

    With threshold sharing the Compute nodes beyond the threshold are waited for until midway
    between `deadline` and `give_up_at`.

    Raises:
        ValueError: too few clients for the tolerances, too little noise, or an overflow.
    """
    size = len(population)
    sensitivity = query.design(mechanism).sensitivity
    federation = {"population": size, "dropouts": dropouts, "colluders": colluders}
    noise = noise_for(mechanism, sensitivity=sensitivity, cost=cost, **federation)
    exact = price(noise, sensitivity=sensitivity, **federation)
    midway = deadline + (give_up_at - deadline) / 2
    spec = RoundSpec(
        manifest=manifest.digest,
        job=job,
        number=number,
        query=query,
        dimension=query.dimension,
        modulus_bits=sharing.modulus_bits,
        sharing=sharing,
        noise=noise,
        population=encode_clients(population),
        population_size=size,
        dropouts=dropouts,
        colluders=colluders,
        minimum_cohort=size - dropouts,
        compute_nodes=tuple(node.name for node in manifest.manifest.compute_nodes),
        opened_at=opened_at,
        deadline=deadline,
        proceed_at=give_up_at if sharing.scheme == "additive" else midway,
        give_up_at=give_up_at,
        mu=exact.mu,
        epsilon=exact.stated_epsilon,
    )
    try:
        check_spec(spec, manifest, now=opened_at)
    except RefusedSpec as error:
        raise ValueError(str(error)) from error
    return spec


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
        raise RefusedSpec("the deadline has passed")
    check_terms(spec, consortium.manifest)
    if (spec.opened_at - now).total_seconds() > maximum_seconds:
        raise RefusedSpec("opened_at lies too far ahead")  # services would keep it all the time
    if not spec.clients().issubset(consortium.roster.enrolled_set):
        raise RefusedSpec("the population holds a client that is not enrolled")


def check_terms(spec: RoundSpec, manifest: Manifest) -> None:
    """Refuse a spec by what needs neither a clock nor a roster: what anyone can check later.

    Raises:
        RefusedSpec, MalformedDocument: as `check_spec`.
    """
    policy = manifest.policy
    _check_times(spec, policy.maximum_round_seconds)
    _check_parties(spec, manifest)
    _check_sharing(spec, policy.minimum_threshold)
    if spec.query.name not in policy.queries:
        raise RefusedSpec("the policy does not allow this query")
    if spec.colluders < policy.minimum_colluders:
        raise RefusedSpec(f"colluders must be at least {policy.minimum_colluders}")
    if spec.noise.mechanism not in policy.mechanisms:
        raise RefusedSpec("the policy does not allow this mechanism")
    if spec.dimension != spec.query.dimension:
        raise RefusedSpec("dimension is not that of the query")
    _check_noise(spec, policy.cap)


def _check_times(spec: RoundSpec, maximum_seconds: int) -> None:
    if not spec.opened_at < spec.deadline < spec.give_up_at:
        raise RefusedSpec("opened_at, deadline and give_up_at must follow one another")
    if (spec.give_up_at - spec.opened_at).total_seconds() > maximum_seconds:
        raise RefusedSpec(f"the round may last at most {maximum_seconds} seconds")


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


def _check_sharing(spec: RoundSpec, minimum_threshold: int | None) -> None:
    nodes = len(spec.compute_nodes)
    if reason := spec.sharing.refusal(nodes=nodes, minimum_threshold=minimum_threshold):
        raise RefusedSpec(reason)
    if spec.modulus_bits != spec.sharing.modulus_bits:
        raise RefusedSpec("modulus_bits is not that of the sharing scheme")
    if spec.sharing.scheme == "additive":
        if spec.proceed_at != spec.give_up_at:
            raise RefusedSpec("proceed_at must be give_up_at where all Compute nodes are needed")
    elif not spec.deadline < spec.proceed_at < spec.give_up_at:
        raise RefusedSpec("proceed_at must lie between deadline and give_up_at")


def _check_noise(spec: RoundSpec, cap: Cap) -> None:
    try:
        parties = spec.parties
    except ValueError as error:
        raise RefusedSpec("too few clients for so many dropouts and colluders") from error
    if not spec.noise.is_fine_enough(spec.design, parties=parties):
        raise RefusedSpec("the noise is too small against the grid: raise the query's grid_bits")
    cost = price(
        spec.noise,
        sensitivity=spec.design.sensitivity,
        population=spec.population_size,
        dropouts=spec.dropouts,
        colluders=spec.colluders,
    )
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
        modulus_bits=spec.modulus_bits,
    ):
        raise RefusedSpec("the sum could overflow the modulus")


def _is_price(declared: float, computed: float) -> bool:
    if math.isinf(computed):
        return math.isinf(declared)
    return _LEAST_OF_COST * computed <= declared <= _MOST_OF_COST * computed
