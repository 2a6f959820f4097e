"""Which round specs are acceptable, and how one is made; each party checks by itself.

What a party checks of a round by its job is in `jobs`.
"""

import math
from datetime import datetime
from typing import Final

from pyroaring import BitMap

from shoal_protocol.accounting import Cap, Cost, noise_for, price
from shoal_protocol.encoding import encode_clients
from shoal_protocol.errors import RefusedSpec
from shoal_protocol.hidden_participation import HIDEABLE_QUERIES, HiddenParticipation
from shoal_protocol.manifest import Consortium, Manifest
from shoal_protocol.mechanisms import fits_modulus
from shoal_protocol.queries import Mechanism, Query
from shoal_protocol.round_spec import LARGEST_DIMENSION, RoundSpec
from shoal_protocol.schemes import Sharing

__all__ = [
    "LARGEST_DIMENSION",
    "LARGEST_POPULATION",
    "LARGEST_SPEC_BYTES",
    "RoundSpec",
    "check_spec",
    "check_terms",
    "make_spec",
]

LARGEST_POPULATION: Final = 2**20
# a roster of 10,000,000 clients takes 8 KiB of bitmap for each 65,536 indices, 1.6 MiB in base64;
# 512 columns with the longest names take 180 KiB.
LARGEST_SPEC_BYTES: Final = 2 << 20
# Everyone recomputes the declared cost. What may be missing, relative, is rounding, which
# `PRICE_MARGIN` covers: what is charged is never below what the noise costs.
_LEAST_OF_COST: Final = 1.0 - 4e-11
_MOST_OF_COST: Final = 1.0 + 1e-9
# The price of hidden participation is found by search, and covers ten times as much.
_HIDDEN_TOLERANCE: Final = 1e-7


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
    hidden: HiddenParticipation | None = None,
) -> RoundSpec:
    """Make the spec of a round that costs each client at most `cost`, noise by Theorem 1.

    With `hidden` participation `cost` is what it would cost whoever surely takes part.

    With threshold sharing the Compute nodes beyond the threshold are waited for until midway
    between `deadline` and `give_up_at`.

    Raises:
        ValueError: too few clients for the tolerances, too little noise, or an overflow.
    """
    size = len(population)
    sensitivity = query.design(mechanism).sensitivity
    federation = {"population": size, "dropouts": dropouts, "colluders": colluders}
    noise = noise_for(mechanism, sensitivity=sensitivity, cost=cost, **federation)
    known = price(noise, sensitivity=sensitivity, **federation)
    exact = known if hidden is None else hidden.charged(known)
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
        hidden=hidden,
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
    if spec.hidden is not None:
        _check_hidden(spec, spec.hidden, policy.cap)
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


def _check_hidden(spec: RoundSpec, hidden: HiddenParticipation, cap: Cap) -> None:
    if spec.noise.mechanism != "discrete_gaussian":
        raise RefusedSpec("hidden participation needs Gaussian noise")
    if spec.query.name not in HIDEABLE_QUERIES:
        raise RefusedSpec("participation in this query cannot be hidden")
    if not cap.forgives_slack:
        raise RefusedSpec("the policy's delta is too small for hidden participation")
    if spec.number >= hidden.rounds:
        raise RefusedSpec("the rounds of the job that were paid for are over")
    if (spec.number == 0) != (hidden.prepaid_by is None):
        raise RefusedSpec("the job's first round pays for all, and each other names it")


def _check_noise(spec: RoundSpec, cap: Cap) -> None:
    try:
        parties = spec.parties
    except ValueError as error:
        raise RefusedSpec("too few clients for so many dropouts and colluders") from error
    if not spec.noise.is_fine_enough(spec.design, parties=parties):
        raise RefusedSpec("the noise is too small against the grid: raise the query's grid_bits")
    cost = _charged(spec)
    tolerances = (_LEAST_OF_COST, _MOST_OF_COST)
    if spec.hidden is not None:
        tolerances = (1.0 - _HIDDEN_TOLERANCE, 1.0 + _HIDDEN_TOLERANCE)
    if not _is_price(spec.mu, cost.mu, tolerances):
        raise RefusedSpec("mu is not what the query and its noise cost")
    if not _is_price(spec.cost.epsilon, cost.epsilon, tolerances):
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


def _charged(spec: RoundSpec) -> Cost:
    """Return what the round is charged, by its query and its noise."""
    if spec.hidden is None:
        return spec.known_cost
    try:
        return spec.hidden.charged(spec.known_cost)
    except ValueError as error:
        raise RefusedSpec("so many rounds with so little noise have no price") from error


def _is_price(declared: float, computed: float, tolerances: tuple[float, float]) -> bool:
    if math.isinf(computed):
        return math.isinf(declared)
    least, most = tolerances
    return least * computed <= declared <= most * computed
