"""The count of lost and double-counted shares sees one that is planted, of either kind."""

import itertools
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from bench.faults import Tally, run_job
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.schemes import ADDITIVE, Sharing
from shoal_protocol.sharing.shares import SEED_BYTES, ShareKind
from shoal_protocol.wire.encoding import Uint64Vector
from tests.world.federation import Federation
from tests.world.losses import Losses, count_losses, explain
from tests.world.trust import SITES, Trust
from tests.world.wire import Fault, Rule

CLIENTS = sum(SITES.values())


async def test_a_calm_job_loses_nothing(federation: Federation) -> None:
    await federation.learn()

    assert await count_losses(federation) == Losses(acknowledged=3 * len(SITES))


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


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ((0, 0, 0), Losses()),
        ((1, 0, 0), Losses(double_counted=1)),
        ((0, -1, 0), Losses(lost=1)),
        ((-1, 1, 0), Losses(lost=1, double_counted=1)),
        ((0, 0, 2), Losses(double_counted=2)),
        ((1, 1, 1), Losses(unexplained=1)),
    ],
)
def test_what_a_sum_has_too_much_is_traced_to_clients(
    factors: tuple[int, ...], expected: Losses
) -> None:
    contributions = [np.array(each, np.int64) for each in ((3, 5, 7), (11, -2, 13), (0, 17, 1))]
    surplus = sum(
        (factor * each for factor, each in zip(factors, contributions, strict=True)),
        start=np.zeros(3, np.int64),
    )
    assert explain(surplus, contributions) == expected


async def test_a_job_in_bad_weather_is_tallied(trust: Trust, tmp_path: Any) -> None:
    tally = await run_job(trust, tmp_path, ADDITIVE, "weather")

    assert tally.rounds == 2
    assert tally.faults.total() > 5
    assert tally.losses.acknowledged > CLIENTS // 2
    assert tally.is_clean
    assert tally.violations == []
