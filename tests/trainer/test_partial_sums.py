"""A result counts only as the sum of what every Compute node signed: a lying aggregator fails."""

from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import select

from shoal_protocol.rounds.attestations import Result
from shoal_protocol.rounds.outcomes import IMPOSSIBLE
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.vectors import decode_uint64, encode_uint64
from shoal_trainer import schema
from shoal_trainer.assembly import Service
from tests.trainer.test_jobs import NOT_VALID, running, state
from tests.world import examples
from tests.world.around_trainer import Federation, plain_sums, signed_sum
from tests.world.clock import HandMovedClock

Sums = list[Signed[Any]]


def first_changed(**changes: Any) -> Callable[[RoundSpec], Sums]:
    """Return the sums of which compute-0 signed another one than the result names."""

    def change(spec: RoundSpec) -> Sums:
        first, *others = plain_sums(spec)
        body = first.body.model_copy(update=changes)
        return [examples.named("compute-0", body), *others]

    return change


def forged(spec: RoundSpec) -> Sums:
    first, *others = plain_sums(spec)
    return [sign(first.body, "compute-0", examples.signing_key("aggregator")), *others]


def signed_by_another(spec: RoundSpec) -> Sums:
    first, *others = plain_sums(spec)
    return [examples.named("aggregator", first.body), *others]


def too_short(spec: RoundSpec) -> Sums:
    return [
        signed_sum(spec, node, values=encode_uint64(np.zeros(2, np.uint64)))
        for node in spec.compute_nodes
    ]


LIES: dict[str, tuple[Callable[[RoundSpec], Sums], str]] = {
    "none": (lambda spec: [], "refused-result"),
    "one too few": (lambda spec: plain_sums(spec)[:-1], "refused-result"),
    "one twice": (lambda spec: plain_sums(spec)[:1] + plain_sums(spec), "refused-result"),
    "one of them in place of another": (
        lambda spec: plain_sums(spec)[:2] + plain_sums(spec)[:1],
        "refused-result",
    ),
    "another than the result names": (
        lambda spec: [
            signed_sum(spec, node, values=encode_uint64(np.zeros(spec.dimension, np.uint64)))
            for node in spec.compute_nodes
        ],
        "refused-result",
    ),
    "one with the aggregator's signature": (forged, "bad-signature"),
    "one that the aggregator signed": (signed_by_another, "wrong-signer"),
    "one bound to another manifest": (first_changed(manifest="0" * 64), "wrong-manifest"),
    "one of another round": (first_changed(round="0" * 64), "wrong-round"),
    "one over another cohort": (first_changed(cohort="0" * 64), "wrong-cohort"),
    "one over another number of clients": (first_changed(cohort_size=13), "wrong-cohort"),
    "one with a charge behind it": (
        lambda spec: first_changed(charge=examples.charge(spec, "compute-0", number=100))(spec),
        "wrong-charge",
    ),
    "one that speaks for another node": (first_changed(node="compute-1"), "wrong-signer"),
    "short ones": (too_short, "wrong-share"),
    "a document of another kind": (
        lambda spec: [examples.DOCUMENTS["vote"]],
        "malformed-document",
    ),
}


@pytest.mark.parametrize(("shown", "code"), LIES.values(), ids=LIES.keys())
async def test_partial_sums_that_do_not_bear_the_result_out_fail_the_job(
    trainer: Service,
    clock: HandMovedClock,
    federation: Federation,
    shown: Callable[[RoundSpec], Sums],
    code: str,
) -> None:
    federation.partial_sums = shown
    await running(trainer, clock)
    said = await state(trainer)
    assert said["phase"] == "failed"
    assert said["reason"].startswith(f"{NOT_VALID}{code}: ")
    assert said["rounds"][0]["phase"] != "published"


def with_the_aggregators_own_values(result: Result) -> Result:
    values = decode_uint64(result.values) + np.uint64(1)
    return result.model_copy(update={"values": encode_uint64(values)})


async def test_the_aggregators_signature_alone_does_not_choose_the_posterior(
    trainer: Service, clock: HandMovedClock, federation: Federation
) -> None:
    federation.tamper = with_the_aggregators_own_values
    await running(trainer, clock)
    said = await state(trainer)
    assert said["phase"] == "failed"
    assert said["reason"].startswith(
        f"{NOT_VALID}refused-result: "
        "the result is not the total of the Compute nodes' partial sums)"
    )


async def test_an_impossible_total_is_refused_also_from_an_aggregator_that_signed_it(
    trainer: Service, clock: HandMovedClock, federation: Federation
) -> None:
    federation.tamper = lambda result: result.model_copy(
        update={"values": encode_uint64(np.full(4, 2**63, np.uint64))}
    )
    await running(trainer, clock)
    reason = (await state(trainer))["reason"]
    assert reason.startswith(f"{NOT_VALID}refused-result: {IMPOSSIBLE})")


async def test_the_partial_sums_are_kept_with_the_results_as_they_were_signed(
    trainer: Service, clock: HandMovedClock, federation: Federation
) -> None:
    await running(trainer, clock)
    kept = select(schema.partial_sums.c.round, schema.partial_sums.c.document)
    rows = await trainer.resources.storage.run(lambda db: db.execute(kept).all())
    rounds = federation.rounds["aggregator"].values()
    assert len(rounds) == 2
    assert {tuple(row) for row in rows} == {
        (spec.digest, each.encode()) for spec in rounds for each in plain_sums(spec)
    }


@pytest.mark.slow
@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_an_aggregator_that_cannot_show_the_outcome_now_is_asked_again(
    trainer: Service, clock: HandMovedClock, federation: Federation, status: int
) -> None:
    federation.wire.scripts["aggregator"] = lambda request: (
        httpx.Response(status, json={}) if request.url.path.endswith("/outcome") else None
    )
    await running(trainer, clock)
    assert (await state(trainer))["phase"] == "running"
    federation.wire.scripts.clear()
    await trainer.step()
    assert (await state(trainer))["phase"] == "finished"
