"""In committees a result rests on the sums of exactly the nodes that each of them names."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from shoal_aggregator.assembly import Service
from shoal_protocol.rounds.attestations import PartialSum, Result, digest_in
from shoal_protocol.sharing.schemes import AdditiveSharing, ThresholdSharing
from shoal_protocol.sharing.shares import from_ring
from shoal_protocol.wire.documents import from_json
from shoal_protocol.wire.vectors import decode_uint64, encode_uint64
from tests.aggregator.conftest import told_of
from tests.world import examples
from tests.world.clock import HandMovedClock
from tests.world.examples import PLACE
from tests.world.parties import client_of, post, signed_by

FIVE = examples.consortium(
    nodes=5,
    policy=examples.POLICY.model_copy(update={"minimum_threshold": 2, "minimum_committee": 3}),
)
SPEC = examples.spec(manifest=FIVE, sharing=ThresholdSharing(threshold=2, committee=3))
ADDITIVE = examples.spec(manifest=FIVE, sharing=AdditiveSharing(committee=3))
FOUR = SPEC.compute_nodes[1:]


def partial_sum(
    node: str, nodes: tuple[str, ...] | None = FOUR, *, cohort: str | None = None
) -> bytes:
    """Return a sum that adds up with those of the other nodes: the first one has it all."""
    values = SPEC.sharing.encode(examples.TOTAL if node == FOUR[0] else 0 * examples.TOTAL)
    body = PartialSum(
        manifest=FIVE.digest,
        round=SPEC.digest,
        node=node,
        cohort=cohort or digest_in(SPEC, examples.held(examples.COHORT), nodes or ()),
        cohort_size=len(examples.COHORT),
        nodes=nodes,
        values=encode_uint64(values),
        charge=examples.charge(SPEC, node),
        entry=PLACE,
    )
    return signed_by(node, body)


@pytest.fixture
async def aggregator(
    database_url: str, tmp_path: Path, clock: HandMovedClock
) -> AsyncIterator[Service]:
    at = told_of(SPEC, FIVE, database_url=database_url, directory=tmp_path, clock=clock)
    async with at as service:
        yield service


async def send(service: Service, body: bytes) -> object:
    return await post(service, f"/v1/rounds/{SPEC.digest}/ends", body)


async def result(service: Service) -> Result | None:
    async with client_of(service.app) as http:
        response = await http.get(f"/v1/rounds/{SPEC.digest}/outcome")
    if response.status_code != 200:
        return None
    return from_json(response.json()["documents"][0], Result).body


async def test_nobody_is_waited_for_once_all_that_are_named_have_sent(aggregator: Service) -> None:
    for node in FOUR:
        await aggregator.step()
        assert await result(aggregator) is None
        assert await send(aggregator, partial_sum(node)) == 201
    await aggregator.step()
    published = await result(aggregator)
    assert published is not None
    assert np.array_equal(from_ring(decode_uint64(published.values)), examples.TOTAL)
    assert tuple(each.node for each in published.partial_sums) == FOUR
    # a node that was not named has nothing to add
    assert await send(aggregator, partial_sum("compute-0", SPEC.compute_nodes)) == "wrong-cohort"


async def test_a_node_that_is_named_and_never_sends_costs_the_round(
    aggregator: Service, clock: HandMovedClock
) -> None:
    for node in FOUR[:3]:
        assert await send(aggregator, partial_sum(node)) == 201
    clock.now = SPEC.proceed_at
    await aggregator.step()
    assert await result(aggregator) is None
    clock.now = SPEC.give_up_at
    await aggregator.step()
    assert await send(aggregator, partial_sum(FOUR[3])) == "round-abandoned"


async def test_sums_that_name_other_nodes_under_one_digest_are_not_added(
    aggregator: Service, clock: HandMovedClock
) -> None:
    digest = digest_in(SPEC, examples.held(examples.COHORT), FOUR)
    for node in FOUR[:3]:
        assert await send(aggregator, partial_sum(node)) == 201
    liar = partial_sum("compute-0", SPEC.compute_nodes, cohort=digest)
    assert await send(aggregator, liar) == "wrong-cohort"
    await aggregator.step()
    assert await result(aggregator) is None
    assert await send(aggregator, partial_sum(FOUR[3])) == 201
    await aggregator.step()
    assert await result(aggregator) is not None


@pytest.mark.parametrize(
    ("node", "nodes"),
    [
        ("compute-1", None),
        ("compute-0", FOUR),
        ("compute-1", FOUR[:3]),
        ("compute-1", FOUR[::-1]),
    ],
    ids=["none", "not its own", "too few", "disordered"],
)
async def test_a_sum_that_does_not_name_enough_nodes_with_its_own_is_refused(
    aggregator: Service, node: str, nodes: tuple[str, ...] | None
) -> None:
    assert await send(aggregator, partial_sum(node, nodes)) == "wrong-cohort"
