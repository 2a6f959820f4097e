"""Which rounds a node takes, and how it keeps each client within the consortium's cap."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from pyroaring import BitMap

from shoal_compute import announcing
from shoal_protocol.privacy.mechanisms import gaussian_mu
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service import signed_documents, work
from shoal_service.storage.thread import StorageThread
from tests.world.around_node import SECOND, Federation, called_off
from tests.world.examples import signing_key

CAP = gaussian_mu(epsilon=4.0, delta=1e-6)


async def announce(federation: Federation, spec: Signed[RoundSpec] | bytes) -> tuple[int, str]:
    encoded = spec if isinstance(spec, bytes) else spec.encode()
    reply = await federation.request(0, "POST", "/v1/rounds", encoded)
    return reply.status_code, reply.json().get("type", "").removeprefix("urn:shoal:problem:")


async def test_a_round_is_taken_once_and_shown_to_everyone(federation: Federation) -> None:
    spec = federation.spec()
    assert await announce(federation, spec) == (201, "")
    assert await announce(federation, spec) == (200, "")
    assert await federation.state(0, spec) == {
        "round": spec.digest,
        "phase": "announced",
        "failure": None,
        "asked": 12,
        "population_size": 12,
        "held": 0,
    }
    shown = await federation.request(0, "GET", f"/v1/rounds/{spec.digest}/spec")
    assert shown.content == spec.encode()


async def test_what_rounds_were_charged_is_listed(federation: Federation) -> None:
    for number, clients in enumerate((range(12), range(8, 19))):  # clients 8 to 11 are in both
        population = {"population": BitMap(clients), "dropouts": 1, "colluders": 2, "mu": 0.3}
        assert (await announce(federation, federation.spec(number=number, **population)))[0] == 201
    first, second = (await federation.request(0, "GET", "/v1/ledger")).json()["entries"]
    assert [first["clients"], second["clients"]] == [12, 11]
    assert [first["mu"], second["mu"]] == pytest.approx([0.3, 0.3])
    page = (await federation.request(0, "GET", "/v1/ledger?after=1&count=1")).json()
    assert (page["entries"], page["next"], page["withdrawn"]) == ([second], 2, [])


async def test_only_the_trainer_announces_rounds(federation: Federation) -> None:
    body = federation.spec().body
    for name in ("analyst", "aggregator", "compute-1"):
        forged = sign(body, name, signing_key(name))
        assert await announce(federation, forged) == (403, "wrong-signer")
    forged = sign(body, "trainer", signing_key("analyst"))
    assert await announce(federation, forged) == (403, "bad-signature")
    unknown = sign(body, "nobody", signing_key("analyst"))
    assert await announce(federation, unknown) == (403, "unknown-signer")


async def test_a_spec_that_breaks_the_policy_is_refused(federation: Federation) -> None:
    body = federation.spec().body
    for changes in (
        {"minimum_cohort": 9},
        {"mu": body.mu * 0.9},
        {"compute_nodes": ("compute-0", "compute-1")},
        {"population_size": 13},
    ):
        changed = body.model_copy(update=changes)
        spec = sign(changed, "trainer", signing_key("trainer"))
        assert await announce(federation, spec) == (422, "refused-spec")


async def test_rounds_may_cost_a_client_the_cap_and_no_more(federation: Federation) -> None:
    share = CAP / 2.0  # four of these, squared, make up the cap
    for number in range(3):
        assert (await announce(federation, federation.spec(number=number, mu=share)))[0] == 201
    federation.crash(0)
    beyond = federation.spec(number=3, mu=share * 1.001)
    assert await announce(federation, beyond) == (403, "budget-exceeded")
    assert await announce(federation, federation.spec(number=4, mu=share)) == (201, "")
    last = federation.spec(number=5, mu=0.01)
    assert await announce(federation, last) == (403, "budget-exceeded")
    federation.crash(0)
    assert await announce(federation, last) == (403, "budget-exceeded")


async def test_a_round_abandoned_before_it_held_a_share_costs_nothing(
    federation: Federation,
) -> None:
    spec = federation.spec(mu=CAP * 0.9)
    assert await announce(federation, spec) == (201, "")
    again = federation.spec(number=1, mu=CAP * 0.9, opened_at=federation.clock() + 95 * SECOND)
    assert await announce(federation, again) == (403, "budget-exceeded")
    await federation.gossip(0, [called_off(spec.body)])
    await federation.step([0])
    assert (await federation.state(0, spec))["phase"] == "abandoned"
    federation.crash(0)
    assert await announce(federation, again) == (201, "")


async def test_a_round_abandoned_after_it_held_a_share_stays_charged(
    federation: Federation,
) -> None:
    spec = federation.spec(mu=CAP * 0.9)
    await federation.announce(spec, [0])
    await federation.upload_all(spec, [3], nodes=[0])
    await federation.gossip(0, [called_off(spec.body)])
    await federation.step([0])
    again = federation.spec(number=1, mu=CAP * 0.9, deadline=federation.clock() + 50 * SECOND)
    assert await announce(federation, again) == (403, "budget-exceeded")


@pytest.mark.parametrize("seconds", [1, 59])
async def test_an_open_round_takes_shares_until_its_deadline(
    federation: Federation, seconds: int
) -> None:
    spec = federation.spec()
    await federation.announce(spec, [0])
    federation.clock.now = spec.body.opened_at + timedelta(seconds=seconds)
    await federation.step([0])
    await federation.upload_all(spec, [3], nodes=[0])
    assert (await federation.state(0, spec))["held"] == 1


@pytest.mark.parametrize("reached_the_disk", [True, False])
async def test_a_round_whose_commit_seems_to_fail_is_charged_if_it_is_on_file(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, reached_the_disk: bool
) -> None:
    doubtful = federation.spec(mu=CAP * 0.9)
    other = federation.spec(job="ab" * 32, mu=CAP * 0.9)
    with monkeypatch.context() as fault:
        fault.setattr(StorageThread, "run", breaking_off(after_commit=reached_the_disk))
        assert await announce(federation, doubtful) == (503, "storage-unavailable")
        assert await announce(federation, other) == (503, "storage-unavailable")
        assert await announce(federation, doubtful) == (503, "storage-unavailable")
    expected = (403, "budget-exceeded") if reached_the_disk else (201, "")
    assert await announce(federation, other) == expected
    again = (200, "") if reached_the_disk else (403, "budget-exceeded")
    assert await announce(federation, doubtful) == again
    metrics = (await federation.request(0, "GET", "/metrics")).text
    assert 'shoal_compute_rounds{phase="announced"} 1.0' in metrics


def breaking_off(*, after_commit: bool) -> Callable[..., Awaitable[Any]]:
    """Make a `StorageThread.run` whose connection breaks when a round is stored."""
    whole = StorageThread.run
    broken = False

    async def run(storage: StorageThread, transaction: Any, *arguments: Any) -> Any:
        nonlocal broken
        if broken:
            raise StorageUnavailable
        if transaction.__qualname__ == announcing.Announcements._add.__qualname__:
            broken = True
            if after_commit:
                await whole(storage, transaction, *arguments)
            raise StorageUnavailable
        return await whole(storage, transaction, *arguments)

    return run


async def test_a_node_has_only_so_many_rounds_under_way(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcing, "MOST_LIVE_ROUNDS", 2)
    first, second, third = (federation.spec(number=number, mu=CAP / 3) for number in range(3))
    for spec in (first, second):
        assert await announce(federation, spec) == (201, "")
    for _ in range(2):
        assert await announce(federation, third) == (503, "not-ready")
        assert await announce(federation, second) == (200, "")
        federation.crash(0)
    await federation.gossip(0, [called_off(first.body)])
    for peer in ("compute-1", "compute-2"):
        federation.wire.lives.pop(peer)
    federation.clock.move(50)
    await federation.step([0])
    assert await announce(federation, third) == (503, "not-ready")
    federation.clock.move(40)  # to the time at which the round would have been given up
    await federation.step([0])
    later = federation.spec(number=3, mu=CAP / 3)
    assert await announce(federation, later) == (201, "")


async def test_specs_that_take_long_to_read_hold_no_upload_up(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = federation.spec()
    await federation.announce(spec, [0])
    begun, go_on = threading.Event(), threading.Event()
    decode = signed_documents.decode

    def take_long(encoded: bytes, *kinds: type[RoundSpec], **more: Any) -> Signed[RoundSpec]:
        begun.set()
        go_on.wait()
        return decode(encoded, *kinds, **more)

    monkeypatch.setattr(signed_documents, "decode", take_long)
    monkeypatch.setattr(work, "SMALL_BYTES", 0)  # as if all specs were large
    slow = [asyncio.create_task(announce(federation, federation.spec())) for _ in range(8)]
    try:
        await asyncio.to_thread(begun.wait)
        async with asyncio.timeout(60):  # it would never end
            await federation.upload_all(spec, [3], nodes=[0])
            assert (await federation.gossip(0, []))["documents"] == []
    finally:
        go_on.set()
    assert await asyncio.gather(*slow) == [(200, "")] * 8


async def test_a_round_whose_deadline_has_passed_is_refused(federation: Federation) -> None:
    spec = federation.spec()
    federation.clock.move(60)
    assert await announce(federation, spec) == (422, "refused-spec")
