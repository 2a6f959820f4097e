"""Makes a node's partial sum of its shares' sums: in committees weighted and masked."""

import asyncio
from collections.abc import Awaitable, Callable

from pyroaring import BitMap

from shoal_compute.rounds import Round
from shoal_protocol.rounds.attestations import Vote
from shoal_protocol.sharing import committee_sums, summation
from shoal_protocol.wire.encoding import Uint64Vector

TotalOf = Callable[[BitMap], Awaitable[Uint64Vector]]
"""Returns the sum, shape (d,), of the shares of exactly these data holders."""


async def partial_sum(known: Round, cohort: BitMap, total_of: TotalOf) -> Uint64Vector:
    """Return this node's partial sum, shape (d,), over the cohort that it voted for.

    Raises:
        SharesMissing, StorageUnavailable: as `total_of`.
    """
    if known.spec.body.sharing.committee is None:
        return await total_of(cohort)
    parts = known.by_committee(cohort)
    sums = {start: await total_of(holders) for start, holders in parts.items()}
    return await asyncio.to_thread(_blinded, known, known.votes[known.own], sums)


def _blinded(known: Round, vote: Vote, sums: dict[int, Uint64Vector]) -> Uint64Vector:
    """Weigh and mask: only all nodes of the vote together tell a total."""
    spec, intake = known.spec.body, known.intake
    among = [spec.compute_nodes.index(name) for name in vote.nodes]
    if spec.sharing.scheme == "threshold":
        total = committee_sums.weighted(
            spec.sharing, sums, node=intake.node, among=among, nodes=intake.nodes
        )
    else:
        total = sums[0]
    parties = known.consortium.manifest.compute_nodes
    mask = committee_sums.mask(
        spec.sharing,
        {each: bytes.fromhex(parties[each].box_key) for each in among if each != intake.node},
        node=intake.node,
        box_private_key=intake.box_private_key,
        cohort=vote.cohort,
        dimension=spec.dimension,
    )
    return summation.plus(spec.sharing, total, mask)
