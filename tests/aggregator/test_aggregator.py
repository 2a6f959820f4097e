"""What the aggregator accepts, publishes, refuses and remembers, over HTTP."""

import itertools
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from shoal_aggregator import store
from shoal_aggregator.assembly import Service
from shoal_aggregator.schema import WORD, received
from shoal_protocol.rounds.attestations import Abandonment, AbandonmentReason, Result
from shoal_protocol.rounds.outcomes import IMPOSSIBLE
from shoal_protocol.wire.documents import Signed, decode, from_json
from shoal_protocol.wire.encoding import parse_canonical_json
from shoal_protocol.wire.vectors import encode_uint64
from tests.aggregator.conftest import Assemble
from tests.world import examples
from tests.world.clock import HandMovedClock
from tests.world.examples import PLACE
from tests.world.parties import client_of, post, problem_code, signed_by

ROUND = examples.SPEC.digest
ROUND_PATH = f"/v1/rounds/{ROUND}"
SPEC = signed_by("trainer", examples.SPEC)
SUMS = [signed_by(f"compute-{n}", examples.partial_sum(n)) for n in range(examples.NODES)]


def give_up(node: int, code: str = "holdings_missing", detail: str = "") -> bytes:
    body = Abandonment(
        manifest=examples.CONSORTIUM.digest,
        round=ROUND,
        party=f"compute-{node}",
        reason=AbandonmentReason.model_validate({"code": code, "detail": detail}),
        entry=PLACE,
    )
    return signed_by(f"compute-{node}", body)


def changed_sum(node: int, **changes: object) -> bytes:
    body = examples.partial_sum(node).model_copy(update=changes)
    return signed_by(body.node, body)


async def send_sum(service: Service, body: bytes) -> object:
    return await post(service, f"{ROUND_PATH}/ends", body)


async def get(service: Service, ending: str, **headers: str) -> tuple[object, bytes]:
    async with client_of(service.app) as http:
        response = await http.get(ROUND_PATH + ending, headers=headers)
    if response.status_code >= 400:
        return problem_code(response), response.content
    return response.status_code, response.content


async def announced(service: Service) -> Service:
    assert await post(service, "/v1/rounds", SPEC) == 201
    return service


async def result_of(service: Service) -> Result:
    """Return the result, as if it stood at the place of the example in the journal."""
    end = await end_of(service)
    assert isinstance(end, Result)
    return end.model_copy(update={"entry": PLACE})


async def outcome(service: Service) -> list[Any]:
    """Return the documents of the round's outcome; none while it is open."""
    status, answer = await get(service, "/outcome")
    assert status in (200, 202)
    return parse_canonical_json(answer)["documents"] if status == 200 else []


async def end_of(service: Service) -> Result | Abandonment | None:
    """Return the aggregator's word on the round; None while it is open."""
    shown = await outcome(service)
    if not shown:
        return None
    signed: Signed[Any] = from_json(shown[0], Result, Abandonment)
    examples.CONSORTIUM.verify(signed)
    is_result = isinstance(signed.body, Result)
    assert len(shown) == (1 + len(signed.body.partial_sums) if is_result else 1)
    return signed.body


@pytest.mark.parametrize("order", list(itertools.permutations(range(examples.NODES))))
async def test_the_result_is_the_same_bytes_in_whatever_order_the_sums_come(
    aggregator: Service, order: tuple[int, ...]
) -> None:
    await announced(aggregator)
    for node in order:
        await send_sum(aggregator, SUMS[node])
        await aggregator.step()
    assert await result_of(aggregator) == examples.RESULT


async def test_a_total_that_no_answers_can_have_is_never_released(
    assembled: Assemble, clock: HandMovedClock
) -> None:
    service = await announced(assembled())
    garbage = changed_sum(0, values=encode_uint64(np.full(examples.DIMENSION, 2**63, np.uint64)))
    sums = [garbage, *SUMS[1:]]
    assert [await send_sum(service, each) for each in sums] == [201, 201, 201]
    assert await end_of(service) is None
    service = assembled()
    await service.step()
    assert [await send_sum(service, each) for each in sums] == ["round-abandoned"] * 3
    said, shown = await end_of(service), await get(service, "/outcome")
    assert isinstance(said, Abandonment) and said.party == "aggregator"
    assert said.reason == AbandonmentReason(code="sum_failed", detail=IMPOSSIBLE)
    clock.move(100)
    await service.step()
    assert await get(service, "/outcome") == shown


@pytest.mark.parametrize(
    ("signer", "changes", "code"),
    [
        ("compute-0", {}, "wrong-signer"),
        ("nobody", {}, "unknown-signer"),
        ("trainer", {"manifest": "0" * 64}, "wrong-manifest"),
        ("trainer", {"minimum_cohort": 9}, "refused-spec"),
        ("trainer", {"mu": 1e-3}, "refused-spec"),
        ("trainer", {"deadline": examples.OPENED_AT}, "refused-spec"),
    ],
)
async def test_a_spec_that_no_party_may_follow_is_refused(
    aggregator: Service, signer: str, changes: dict[str, object], code: str
) -> None:
    body = examples.SPEC.model_copy(update=changes)
    assert await post(aggregator, "/v1/rounds", signed_by(signer, body)) == code


@pytest.mark.parametrize("body", [b"", b"{}", b"[1,2]", SPEC + b" ", b"\xff", SUMS[0]])
async def test_bytes_that_are_no_spec_are_refused_and_not_repeated(
    aggregator: Service, body: bytes
) -> None:
    async with client_of(aggregator.app) as http:
        response = await http.post("/v1/rounds", content=body)
    assert problem_code(response) == "malformed-document"
    assert not body or body not in response.content


@pytest.mark.parametrize(
    ("encoded", "code"),
    [
        (changed_sum(0, manifest="0" * 64), "wrong-manifest"),
        (changed_sum(0, round="0" * 64), "wrong-round"),
        (
            changed_sum(0, charge=examples.charge(examples.SPEC, "compute-0", number=100)),
            "wrong-charge",
        ),
        (
            changed_sum(0, charge=examples.charge(examples.spec(number=1), "compute-0")),
            "wrong-charge",
        ),
        (changed_sum(0, cohort_size=9), "wrong-cohort"),
        (changed_sum(0, cohort_size=13), "wrong-cohort"),
        (changed_sum(0, values=encode_uint64(np.zeros(2, np.uint64))), "wrong-share"),
        (changed_sum(0, values="AAAA"), "malformed-document"),
        (signed_by("compute-1", examples.partial_sum(0)), "wrong-signer"),
        (signed_by("aggregator", examples.partial_sum(0)), "wrong-signer"),
        (signed_by("nobody", examples.partial_sum(0)), "unknown-signer"),
    ],
)
async def test_a_partial_sum_that_cannot_belong_to_the_round_is_refused(
    aggregator: Service, encoded: bytes, code: str
) -> None:
    await announced(aggregator)
    assert await send_sum(aggregator, encoded) == code
    assert await aggregator.resources.storage.run(store.count_sums, ROUND) == 0


async def test_a_second_different_sum_is_refused_and_kept_as_evidence(aggregator: Service) -> None:
    await announced(aggregator)
    other = changed_sum(0, values=encode_uint64(np.ones(examples.DIMENSION, np.uint64)))
    assert await send_sum(aggregator, SUMS[0]) == 201
    assert await send_sum(aggregator, other) == "conflicting-document"
    assert await send_sum(aggregator, other) == "conflicting-document"
    assert len(await rows_of_evidence(aggregator)) == 1
    for encoded in SUMS[1:]:
        await send_sum(aggregator, encoded)
    await aggregator.step()
    assert await result_of(aggregator) == examples.RESULT


async def test_a_sum_over_another_cohort_is_refused_and_kept_as_evidence(
    aggregator: Service, clock: HandMovedClock
) -> None:
    await announced(aggregator)
    assert await send_sum(aggregator, SUMS[0]) == 201
    assert await send_sum(aggregator, changed_sum(1, cohort="1" * 64)) == "wrong-cohort"
    assert await send_sum(aggregator, changed_sum(1, cohort_size=12)) == "wrong-cohort"
    assert len(await rows_of_evidence(aggregator)) == 1
    clock.move(91)
    await aggregator.step()
    assert isinstance(await end_of(aggregator), Abandonment)


async def rows_of_evidence(service: Service) -> list[tuple[object, ...]]:
    columns = received.c
    kept = select(columns.node, columns.slot, columns.document).order_by(columns.node)
    rows = await service.resources.storage.run(
        lambda db: db.execute(kept.where(columns.slot != WORD).order_by(columns.slot)).all()
    )
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("is_over", [False, True])
async def test_one_nodes_key_cannot_fill_the_disk_with_evidence(
    aggregator: Service, is_over: bool
) -> None:
    await announced(aggregator)
    for encoded in SUMS:
        await send_sum(aggregator, encoded)
    if is_over:
        await aggregator.step()
    lies = [
        changed_sum(1, values=encode_uint64(np.full(examples.DIMENSION, n, np.uint64)))
        for n in range(5)
    ]
    codes = ("holdings_missing", "votes_missing", "misconduct")
    for lie in lies:
        assert await send_sum(aggregator, lie) == "conflicting-document"
    for code in codes:
        path = f"{ROUND_PATH}/ends"
        assert await post(aggregator, path, give_up(1, code)) == "conflicting-document"
    assert await rows_of_evidence(aggregator) == [
        ("compute-1", "abandonment", give_up(1, codes[0])),
        ("compute-1", "partial_sum", lies[0]),
    ]
    assert isinstance(await end_of(aggregator), Result) is is_over


async def test_a_node_that_ended_a_round_cannot_fill_the_disk_either(
    aggregator: Service,
) -> None:
    await announced(aggregator)
    path = f"{ROUND_PATH}/ends"
    codes = ("holdings_missing", "votes_missing", "misconduct", "cohort_too_small")
    answers = [await post(aggregator, path, give_up(1, code)) for code in codes]
    assert answers == [201, *["conflicting-document"] * 3]
    assert await rows_of_evidence(aggregator) == [
        ("compute-1", "abandonment", give_up(1, codes[1]))
    ]


@pytest.mark.parametrize("detail", ["", "no holdings from compute-2", "x" * 300])
async def test_the_aggregators_abandonment_says_what_the_node_said(
    aggregator: Service, detail: str
) -> None:
    await announced(aggregator)
    given_up = give_up(1, detail=detail)
    assert await post(aggregator, f"{ROUND_PATH}/ends", given_up) == 201
    await aggregator.step()
    said = await end_of(aggregator)
    assert isinstance(said, Abandonment) and said.reason.code == "called_off_by_node"
    reason = AbandonmentReason(code="holdings_missing", detail=detail)
    assert said.reason.detail == f"compute-1: {reason}"[:300]


@pytest.mark.parametrize("signer", ["aggregator", "trainer", "nobody"])
async def test_only_compute_nodes_may_call_a_round_off(aggregator: Service, signer: str) -> None:
    await announced(aggregator)
    body = decode(give_up(0), Abandonment).body.model_copy(update={"party": signer})
    refused = await post(aggregator, f"{ROUND_PATH}/ends", signed_by(signer, body))
    assert refused in {"wrong-signer", "unknown-signer"}
    assert await end_of(aggregator) is None


async def test_a_round_is_given_up_when_its_time_is_over_and_not_before(
    aggregator: Service, clock: HandMovedClock
) -> None:
    await announced(aggregator)
    await send_sum(aggregator, SUMS[0])
    clock.now = examples.SPEC.give_up_at - timedelta(milliseconds=1)
    await aggregator.step()
    assert await end_of(aggregator) is None
    clock.now = examples.SPEC.give_up_at
    await aggregator.step()
    said = await end_of(aggregator)
    assert isinstance(said, Abandonment) and said.reason.code == "partial_sums_missing"


async def test_a_round_with_all_its_sums_is_published_however_late(
    aggregator: Service, clock: HandMovedClock
) -> None:
    await announced(aggregator)
    for encoded in SUMS:
        await send_sum(aggregator, encoded)
    clock.move(10_000)
    await aggregator.step()
    assert isinstance(await end_of(aggregator), Result)


@pytest.mark.parametrize("restarted", [False, True])
async def test_one_round_of_each_number_of_a_job_is_taken_and_none_below_it(
    assembled: Assemble, restarted: bool
) -> None:
    service = assembled()
    first = examples.spec(number=1)
    later = first.opened_at + timedelta(milliseconds=1)
    other = first.model_copy(update={"opened_at": later})
    assert await post(service, "/v1/rounds", signed_by("trainer", first)) == 201
    if restarted:
        service = assembled()
    for refused in (other, examples.SPEC):
        assert await post(service, "/v1/rounds", signed_by("trainer", refused)) == (
            "conflicting-document"
        )
    assert await post(service, "/v1/rounds", signed_by("trainer", first)) == 200
    another_job = other.model_copy(update={"job": "5" * 64})
    assert await post(service, "/v1/rounds", signed_by("trainer", another_job)) == 201
