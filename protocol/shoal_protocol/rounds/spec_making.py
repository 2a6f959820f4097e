"""Makes the spec of a round, as its trainer does."""

from datetime import datetime

from pyroaring import BitMap

from shoal_protocol.privacy.accounting import Cost, price
from shoal_protocol.privacy.calibration import noise_for
from shoal_protocol.queries import Mechanism, Query
from shoal_protocol.rounds.asked_holders import AskedHolders
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.rounds.spec_checks import check_spec
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.encoding import encode_clients
from shoal_protocol.wire.errors import RefusedSpec, UnknownHolder


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
    try:
        asked = AskedHolders.of(population, manifest.roster)
    except UnknownHolder as error:
        raise ValueError("the population holds a client that is not enrolled") from error
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
        smallest_answer=asked.smallest,
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
