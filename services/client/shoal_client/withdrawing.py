"""Tells Compute nodes that a job is withdrawn, so that no trainer goes on with it; asks nothing."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from shoal_client.peer import Peer
from shoal_hosting.exchange import Unavailable
from shoal_protocol.documents import Signed
from shoal_protocol.encoding import canonical_json
from shoal_protocol.jobs import JobRequest
from shoal_protocol.manifest import ServiceParty
from shoal_protocol.membership import JobWithdrawal


async def tell_nodes(
    nodes: Sequence[ServiceParty],
    connect: Callable[[ServiceParty], Peer],
    request: Signed[JobRequest],
    withdrawal: Signed[JobWithdrawal],
) -> None:
    """Hand a withdrawal with its job's request to every node; one that is not there goes without.

    A round needs most of the nodes, so that it is enough if most of them hear of it.
    """
    told = canonical_json({"request": request.to_json(), "withdrawal": withdrawal.to_json()})

    async def tell(party: ServiceParty) -> None:
        node = connect(party)
        try:
            with suppress(Unavailable):
                await node.post("/v1/withdrawals", told, "application/json")
        finally:
            await node.close()

    await asyncio.gather(*(tell(node) for node in nodes))
