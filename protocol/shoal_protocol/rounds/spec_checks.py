"""Checks a round spec against itself, the manifest and the policy; every party does so by itself.

`jobs` checks a round against its job.
"""

import math
from datetime import datetime
from typing import Final

from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.privacy.fineness import fits_modulus
from shoal_protocol.rounds.asked_holders import AskedHolders
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.limits import LARGEST_POPULATION, passed_message, too_far_message
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.trust.policy import Policy
from shoal_protocol.wire.errors import RefusedSpec

# a roster of 10,000,000 clients takes 8 KiB of bitmap for each 65,536 indices, 1.6 MiB in base64;
# 512 columns with the longest names take 180 KiB.
LARGEST_SPEC_BYTES: Final = 2 << 20
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
    _check_times(spec, policy.maximum_round_seconds)
    _check_parties(spec, manifest)
    _check_sharing(spec, policy)
    if spec.query.name not in policy.queries:
        raise RefusedSpec("the policy does not allow this query")
    if spec.colluders < policy.minimum_colluders:
        raise RefusedSpec(f"colluders must be at least {policy.minimum_colluders}")
    if spec.noise.mechanism not in policy.mechanisms:
        raise RefusedSpec("the policy does not allow this mechanism")
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


def _check_sharing(spec: RoundSpec, policy: Policy) -> None:
    if reason := policy.sharing_refusal(spec.sharing, nodes=len(spec.compute_nodes)):
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
    if not spec.noise.is_fine_enough(spec.design, parties=parties, mu=spec.mu):
        raise RefusedSpec("the noise is too small against the grid: raise the query's grid_bits")
    cost = spec.computed_cost
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
