"""Under threshold sharing a result rests on the sums that came, and wrong ones show."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap

from shoal_aggregator import aggregator as deciding
from shoal_aggregator import store
from shoal_aggregator.assembly import Service
from shoal_protocol.rounds.attestations import (
    Abandonment,
    AbandonmentReason,
    PartialSum,
    Result,
    cohort_digest,
)
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.sharing.shamir import MODULUS
from shoal_protocol.sharing.shares import from_ring
from shoal_protocol.wire.documents import decode, from_json
from shoal_protocol.wire.encoding import parse_canonical_json
from shoal_protocol.wire.vectors import decode_uint64, encode_uint64
from tests.aggregator.conftest import told_of
from tests.world import examples
from tests.world.adding import added
from tests.world.clock import HandMovedClock
from tests.world.examples import PLACE
from tests.world.parties import client_of, post, problem_code, signed_by

NODES = 5
THREE = ThresholdSharing(threshold=3)
FIVE = examples.consortium(
    nodes=NODES, policy=examples.POLICY.model_copy(update={"minimum_threshold": 3})
)
SPEC = examples.spec(manifest=FIVE, sharing=THREE)
PATH = f"/v1/rounds/{SPEC.digest}"
EVERYBODY = BitMap(range(12))


def partial_sum(node: int, cohort: BitMap = examples.COHORT) -> PartialSum:
    shares = [
        THREE.split(
            THREE.encode(examples.contribution(client)),
            holder=client,
            nodes=NODES,
            random_bytes=examples.random_bytes(f"seeds of client {client}"),
        )[node]
        for client in cohort
    ]
    return PartialSum(
        manifest=FIVE.digest,
        round=SPEC.digest,
        node=f"compute-{node}",
        cohort=cohort_digest(SPEC.digest, examples.held(cohort)),
        cohort_size=len(cohort),
        values=encode_uint64(added(THREE, shares, SPEC.dimension)),
        charge=examples.charge(SPEC, f"compute-{node}"),
        entry=PLACE,
    )


SUMS = [partial_sum(node) for node in range(NODES)]


def signed(body: PartialSum) -> bytes:
    return signed_by(body.node, body)


def wrong(node: int) -> bytes:
    values = decode_uint64(SUMS[node].values)
    values[0] = (values[0] + np.uint64(1)) % np.uint64(MODULUS)
    return signed(SUMS[node].model_copy(update={"values": encode_uint64(values)}))


def abandonment(node: int) -> bytes:
    body = Abandonment(
        manifest=FIVE.digest,
        round=SPEC.digest,
        party=f"compute-{node}",
        reason=AbandonmentReason(code="votes_missing"),
        entry=PLACE,
    )
    return signed_by(body.party, body)


@pytest.fixture
async def aggregator(
    database_url: str, tmp_path: Path, clock: HandMovedClock
) -> AsyncIterator[Service]:
    at = told_of(SPEC, FIVE, database_url=database_url, directory=tmp_path, clock=clock)
    async with at as service:
        yield service


async def send(service: Service, body: bytes) -> object:
    return await post(service, f"{PATH}/ends", body)


async def get(service: Service, ending: str) -> tuple[object, bytes]:
    async with client_of(service.app) as http:
        response = await http.get(PATH + ending)
    status = response.status_code
    return (problem_code(response) if status >= 400 else status), response.content


async def outcome(service: Service) -> list[Any]:
    """Return the documents of the round's outcome; none while it is open."""
    status, encoded = await get(service, "/outcome")
    assert status in (200, 202)
    return parse_canonical_json(encoded)["documents"] if status == 200 else []


async def result(service: Service) -> Result | None:
    shown = await outcome(service)
    return from_json(shown[0], Result).body if shown else None


async def abandoned(service: Service) -> str:
    [shown] = await outcome(service)
    return from_json(shown, Abandonment).body.reason.code


def nodes_of(documents: list[Any]) -> list[str]:
    """Return the nodes whose partial sums these are."""
    return [from_json(each, PartialSum).body.node for each in documents]


def names(nodes: list[int]) -> list[str]:
    return [f"compute-{node}" for node in nodes]


def rests_on(published: Result | None, nodes: list[int]) -> None:
    """Check that the result is the exact sum and refers to the sums of these nodes."""
    assert published is not None
    assert from_ring(decode_uint64(published.values)).tolist() == examples.TOTAL.tolist()
    assert [each.node for each in published.partial_sums] == names(nodes)


async def publish(aggregator: Service, clock: HandMovedClock) -> None:
    """Have the round published by the sums of three of five nodes."""
    for node in (0, 1, 2):
        await send(aggregator, signed(SUMS[node]))
    clock.now = SPEC.proceed_at
    await aggregator.step()


async def test_all_sums_are_waited_for_until_the_time_to_proceed(
    aggregator: Service, clock: HandMovedClock
) -> None:
    for node in (4, 0, 3):
        assert await send(aggregator, signed(SUMS[node])) == 201
    clock.now = SPEC.deadline
    await aggregator.step()
    assert await result(aggregator) is None
    clock.now = SPEC.proceed_at
    await aggregator.step()
    rests_on(await result(aggregator), [0, 3, 4])
    assert nodes_of((await outcome(aggregator))[1:]) == names([0, 3, 4])


async def test_fewer_sums_than_the_threshold_are_never_opened(
    aggregator: Service, clock: HandMovedClock
) -> None:
    for node in (1, 2):
        await send(aggregator, signed(SUMS[node]))
    for moment in (SPEC.proceed_at, SPEC.give_up_at):
        clock.now = moment
        assert await result(aggregator) is None
        await aggregator.step()
    assert await abandoned(aggregator) == "partial_sums_missing"


async def test_a_round_goes_on_without_the_nodes_it_can_spare_and_ends_with_one_more(
    aggregator: Service, clock: HandMovedClock
) -> None:
    path = f"{PATH}/ends"
    assert [await post(aggregator, path, abandonment(node)) for node in (0, 1, 1)] == [
        *(201, 201, 200)
    ]
    await send(aggregator, signed(SUMS[2]))
    assert await result(aggregator) is None
    assert await post(aggregator, path, abandonment(3)) == 201
    await aggregator.step()
    assert await abandoned(aggregator) == "called_off_by_node"
    assert await send(aggregator, signed(SUMS[4])) == "round-abandoned"


async def test_of_two_cohorts_at_most_one_is_ever_opened(
    aggregator: Service, clock: HandMovedClock
) -> None:
    for node in (0, 1):
        assert await send(aggregator, signed(partial_sum(node, EVERYBODY))) == 201
    for node in (2, 3):
        assert await send(aggregator, signed(SUMS[node])) == 201
    clock.now = SPEC.proceed_at
    await aggregator.step()
    assert await result(aggregator) is None
    assert await send(aggregator, signed(SUMS[4])) == 201
    await aggregator.step()
    rests_on(await result(aggregator), [2, 3, 4])


async def test_a_wrong_sum_among_four_waits_for_the_fifth_which_tells_them_apart(
    aggregator: Service, clock: HandMovedClock
) -> None:
    for body in (wrong(0), signed(SUMS[1]), signed(SUMS[2]), signed(SUMS[3])):
        assert await send(aggregator, body) == 201
    clock.now = SPEC.proceed_at
    await aggregator.step()
    assert await result(aggregator) is None
    await send(aggregator, signed(SUMS[4]))
    await aggregator.step()
    rests_on(await result(aggregator), [1, 2, 3, 4])


async def test_late_sums_are_acknowledged_and_compared_with_the_published_ones(
    aggregator: Service, clock: HandMovedClock
) -> None:
    await publish(aggregator, clock)
    before = await get(aggregator, "/outcome")
    assert [await send(aggregator, signed(SUMS[3])) for _ in range(2)] == [200, 200]
    assert await send(aggregator, wrong(3)) == "conflicting-document"
    assert [await send(aggregator, wrong(4)) for _ in range(2)] == [200, 200]
    assert await get(aggregator, "/outcome") == before
    _, wrong_sums = await get(aggregator, "/wrong-sums")
    assert nodes_of(parse_canonical_json(wrong_sums)["documents"]) == names([4])
    assert await aggregator.resources.storage.run(store.count_sums, SPEC.digest) == NODES


async def test_a_late_sum_is_compared_beside_the_event_loop(
    aggregator: Service, clock: HandMovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(aggregator, clock)
    readers = set[int]()

    def noting(*given: Any) -> Any:
        readers.add(threading.get_ident())
        return decode(*given)

    monkeypatch.setattr("shoal_aggregator.aggregator.decode", noting)
    assert await send(aggregator, signed(SUMS[3])) == 200
    assert readers and threading.get_ident() not in readers


async def test_late_sums_that_come_at_once_are_compared_one_after_another(
    aggregator: Service, clock: HandMovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each comparison has the round's sums in memory, and a node may send its own at will."""
    await publish(aggregator, clock)
    find_words, blamed, loaded = store.find_words, deciding.blamed, [0]

    def finding(*given: Any) -> Any:
        loaded.append(loaded[-1] + 1)
        return find_words(*given)

    def blaming(*given: Any) -> Any:
        loaded.append(loaded[-1] - 2)
        return blamed(*given)

    monkeypatch.setattr(store, "find_words", finding)
    monkeypatch.setattr(deciding, "blamed", blaming)
    sent = [send(aggregator, signed(SUMS[3])) for _ in range(5)]
    assert await asyncio.gather(*sent) == [200] * 5
    assert max(loaded) == 2 and loaded[-1] == 0


async def test_an_impossible_total_of_just_enough_sums_waits_for_the_end_and_is_not_released(
    aggregator: Service, clock: HandMovedClock
) -> None:
    garbage = SUMS[0].model_copy(
        update={"values": encode_uint64(np.full(SPEC.dimension, 2**60, np.uint64))}
    )
    for body in (garbage, SUMS[1], SUMS[2]):
        await send(aggregator, signed(body))
    clock.now = SPEC.proceed_at
    await aggregator.step()
    assert await result(aggregator) is None
    clock.now = SPEC.give_up_at
    await aggregator.step()
    assert await abandoned(aggregator) == "sum_failed"


async def test_late_honest_sums_name_the_liar_that_the_result_rests_on(
    aggregator: Service, clock: HandMovedClock
) -> None:
    for body in (wrong(0), signed(SUMS[1]), signed(SUMS[2])):
        assert await send(aggregator, body) == 201
    clock.now = SPEC.proceed_at
    await aggregator.step()
    for node in (3, 4):
        assert await send(aggregator, signed(SUMS[node])) == 200
    async with client_of(aggregator.app) as http:
        metrics = (await http.get("/metrics")).text
    named = [line for line in metrics.splitlines() if "wrong_partial_sums_total{" in line]
    assert {line.split('"')[1] for line in named} == {"unknown", "compute-0"}
