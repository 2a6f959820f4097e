"""The count of lost and double-counted shares sees one that is planted, of either kind."""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from unittest.mock import patch

from pyroaring import BitMap

from bench.faults import Tally
from shoal_compute import node
from shoal_compute.shares import Packed
from shoal_compute.summing import Summing, add_up, sum_shares
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import summation
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
    calls = itertools.count()

    async def add_one_twice(
        spec: RoundSpec,
        parts: Sequence[BitMap],
        read: Callable[[BitMap], Awaitable[list[Packed]]],
        summing: Summing,
    ) -> Uint64Vector:
        total = await sum_shares(spec, parts, read, summing)
        if next(calls) >= len(federation.nodes):
            return total
        first = (await read(parts[0]))[0]
        size = SEED_BYTES if first.kind is ShareKind.SEED else 8 * spec.dimension
        again = first._replace(payloads=first.payloads[:size])
        return summation.plus(spec.sharing, total, add_up(spec.sharing, [again], spec.dimension))

    with patch.object(node, "sum_shares", add_one_twice):
        await federation.learn()

    losses = await count_losses(federation)
    assert (losses.lost, losses.double_counted, losses.unexplained) == (0, 1, 0)
    assert not Tally(losses=losses).is_clean
