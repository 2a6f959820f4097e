"""The count of lost and double-counted shares sees one that is planted, of either kind."""

import itertools
from unittest.mock import patch

from bench.faults import Tally
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.sharing.shares import SEED_BYTES, ShareKind
from shoal_protocol.wire.encoding import Uint64Vector
from tests.world.federation import Federation
from tests.world.losses import Losses, count_losses
from tests.world.trust import SITES
from tests.world.wire import Fault, Rule


async def test_a_share_that_a_node_acknowledged_and_forgot_is_counted_as_lost(
    federation: Federation,
) -> None:
    federation.wire.rules.append(Rule(Fault.LOST, "clinic-c", "compute-1", "/shares"))
    await federation.learn()
    for message in federation.wire.log:
        if message.fault is Fault.LOST:  # as if it had come, and had been forgotten
            message.status = 201

    losses = await count_losses(federation)
    assert losses == Losses(acknowledged=3 * len(SITES), lost=1)
    assert not Tally(losses=losses).is_clean


async def test_a_client_that_all_nodes_add_twice_is_counted_as_double(
    federation: Federation,
) -> None:
    add, calls = summation.add_packed, itertools.count()

    def add_one_twice(
        scheme: Sharing, kind: ShareKind, payloads: bytes, dimension: int
    ) -> Uint64Vector:
        size = SEED_BYTES if kind is ShareKind.SEED else 8 * dimension
        again = payloads[:size] if next(calls) < len(federation.nodes) else b""
        return add(scheme, kind, payloads + again, dimension)

    with patch.object(summation, "add_packed", add_one_twice):
        await federation.learn()

    losses = await count_losses(federation)
    assert (losses.lost, losses.double_counted, losses.unexplained) == (0, 1, 0)
    assert not Tally(losses=losses).is_clean
