"""A data holder sends one message a round, and goes around nodes that do not hand its answer on."""

import base64
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from shoal_hosting.party import load_party
from shoal_protocol.sharing.envelope import frame
from shoal_protocol.sharing.received import parse_any, receipt_digest, unframe
from shoal_protocol.sharing.session_envelope import is_under_session
from shoal_protocol.wire.share_receipts import sign_receipt
from tests.world.audit import audit
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, Trust
from tests.world.wire import Fault, Rule

CLIENTS = sum(SITES.values())
ALLOWING = HOLDER_POLICY.model_copy(update={"allow_sessions": True})
RELAYING: dict[str, dict[str, Any]] = {site: {"relay": True, "policy": ALLOWING} for site in SITES}
by_each_wrapping = pytest.mark.parametrize("wrapping", ["sealed_box", "session"])
KEPT_BACK = 1
Change = Callable[[list[bytes]], list[list[bytes]]]


def lying(app: ASGIApp, change: Change, forge: Callable[[bytes, list[Any]], None]) -> ASGIApp:
    """Return a node that passes changed bundles on to itself, and forges receipts in the answer."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].endswith("/shares/relayed"):
            await app(scope, receive, send)
            return
        request = await receive()
        body = request["body"]
        while request.get("more_body"):
            request = await receive()
            body += request["body"]
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="https://direct"
        ) as client:
            for bundle in change(list(unframe(body))):
                reply = await client.post(scope["path"], content=frame(bundle))
        content = reply.content
        if reply.status_code == 200:
            listed = reply.json()["receipts"]
            forge(body, listed)
            content = json.dumps({"receipts": listed}).encode()
        await send(
            {
                "type": "http.response.start",
                "status": reply.status_code,
                "headers": [(b"content-type", b"application/json")],
            }
        )
        await send({"type": "http.response.body", "body": content})

    return answer


def as_it_came(bundle: list[bytes]) -> list[list[bytes]]:
    return [bundle]


def without_one(bundle: list[bytes]) -> list[list[bytes]]:
    return [[each for each in bundle if parse_any(each).header.node != KEPT_BACK]]


def many_times(bundle: list[bytes]) -> list[list[bytes]]:
    return [bundle] * 7


def honest(body: bytes, listed: list[Any]) -> None:
    """Leave receipts as they are."""


def lie(
    federation: Federation,
    change: Change,
    forge: Callable[[bytes, list[Any]], None] = honest,
) -> None:
    """Have all nodes but the one whose envelopes are kept back do so."""
    for node, name in enumerate(federation.nodes):
        if node != KEPT_BACK:
            federation.wire.apps[name] = lying(federation.app(name), change, forge)


def messages(federation: Federation, ending: str) -> Counter[str]:
    """Return how many messages with envelopes each site sent to paths of this ending."""
    return Counter(
        message.sender
        for message in federation.wire.log
        if message.sender in SITES and message.path.endswith(ending)
    )


def due(federation: Federation) -> dict[str, int]:
    """Return how many messages each site owes: two if it began with a node that lies."""
    first: dict[str, str] = {}
    for message in federation.wire.log:
        if message.sender in SITES and message.path.endswith("/shares/relayed"):
            first.setdefault(message.sender, message.receiver)
    honest_node = list(federation.nodes)[KEPT_BACK]
    return {site: 1 if node == honest_node else 2 for site, node in first.items()}


async def cohort(federation: Federation, job: str, round_id: str) -> int:
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    result = (await audit(federation))[round_id]
    assert result is not None
    return int(result["cohort_size"])


@by_each_wrapping
async def test_an_answer_is_one_message_to_one_node(
    trust: Trust, tmp_path: Path, wrapping: str
) -> None:
    async with Federation(trust, tmp_path, holders=RELAYING) as federation:
        job, round_id = await federation.collecting(wrapping=wrapping)
        assert await cohort(federation, job, round_id) == CLIENTS
        assert messages(federation, "/shares/relayed") == dict.fromkeys(SITES, 1)
        assert not messages(federation, "/shares") + messages(federation, "/shares/stored")


@by_each_wrapping
async def test_a_relay_that_keeps_a_node_s_envelopes_back_is_gone_around(
    trust: Trust, tmp_path: Path, wrapping: str
) -> None:
    async with Federation(trust, tmp_path, holders=RELAYING) as federation:
        lie(federation, without_one)
        job, round_id = await federation.collecting(wrapping=wrapping)
        assert await cohort(federation, job, round_id) == CLIENTS
        assert messages(federation, "/shares/relayed") == due(federation)


@by_each_wrapping
async def test_a_relay_that_forges_a_node_s_receipts_is_not_believed(
    trust: Trust, tmp_path: Path, wrapping: str
) -> None:
    async with Federation(trust, tmp_path, holders=RELAYING) as federation:

        def forge(body: bytes, listed: list[Any]) -> None:
            [kept] = [each for each in unframe(body) if parse_any(each).header.node == KEPT_BACK]
            key = load_party(trust.directory / "parties" / "compute-0").signing_key
            signed = sign_receipt(receipt_digest(kept), key)
            listed[KEPT_BACK] = base64.b64encode(signed).decode()

        lie(federation, without_one, forge)
        job, round_id = await federation.collecting(wrapping=wrapping)
        assert await cohort(federation, job, round_id) == CLIENTS
        sent = messages(federation, "/shares/relayed")
        assert sent == due(federation), "another way is found before half-time"


@by_each_wrapping
async def test_a_relay_that_repeats_bundles_has_nothing_counted_twice(
    trust: Trust, tmp_path: Path, wrapping: str
) -> None:
    async with Federation(trust, tmp_path, holders=RELAYING) as federation:
        lie(federation, many_times)
        job, round_id = await federation.collecting(wrapping=wrapping)
        assert await cohort(federation, job, round_id) == CLIENTS


@pytest.mark.parametrize("fault", [Fault.HANGS, Fault.LOST, Fault.ANSWER_LOST, Fault.LATE])
async def test_a_relay_that_delays_or_loses_bundles_is_gone_around(
    trust: Trust, tmp_path: Path, fault: Fault
) -> None:
    async with Federation(trust, tmp_path, holders=RELAYING) as federation:
        federation.wire.rules += [
            Rule(fault, None, node, "/shares/relayed$", nth=(0,)) for node in federation.nodes
        ]
        job, round_id = await federation.collecting()
        assert await cohort(federation, job, round_id) == CLIENTS


@by_each_wrapping
async def test_envelopes_go_directly_where_no_node_relays(
    trust: Trust, tmp_path: Path, wrapping: str
) -> None:
    async with Federation(trust, tmp_path, holders=RELAYING) as federation:
        federation.wire.rules += [
            Rule(Fault.LOST, site, None, "/shares/relayed$") for site in SITES
        ]
        job, round_id = await federation.collecting(wrapping=wrapping)
        assert await cohort(federation, job, round_id) == CLIENTS
        assert messages(federation, "/shares") == dict.fromkeys(SITES, len(federation.nodes))


@pytest.mark.parametrize(
    "rule",
    [
        Rule(Fault.RECEIVER_DIES_BEFORE, None, None, "/shares/relayed$", nth=(0,)),
        Rule(Fault.RECEIVER_DIES_AFTER, None, None, "/shares/relayed$", nth=(0,)),
        Rule(Fault.SENDER_DIES_BEFORE, None, None, "/shares/bulk$", nth=(0,)),
        Rule(Fault.SENDER_DIES_AFTER, None, None, "/shares/bulk$", nth=(0,)),
        Rule(Fault.RECEIVER_DIES_AFTER, None, None, "/shares/bulk$", nth=(0,)),
    ],
    ids=lambda rule: f"{rule.fault.name} {rule.path[8:-1]}",
)
async def test_a_node_killed_while_it_relays_loses_nothing_that_was_acknowledged(
    trust: Trust, tmp_path: Path, rule: Rule
) -> None:
    async with Federation(trust, tmp_path, holders=RELAYING) as federation:
        federation.wire.rules.append(rule)
        job, round_id = await federation.collecting()
        assert await cohort(federation, job, round_id) == CLIENTS


async def test_what_a_node_cannot_read_under_a_session_it_gets_directly_in_a_box(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, holders=RELAYING) as federation:
        await federation.learn(wrapping="session")
        forgetful = federation.nodes[KEPT_BACK]
        await federation.crash(forgetful)
        (tmp_path / forgetful / "sessions.json").unlink()
        job, round_id = await federation.collecting(wrapping="session")
        assert await cohort(federation, job, round_id) == CLIENTS
        direct = [
            (message.receiver, is_under_session(message.body), message.status)
            for message in federation.wire.log
            if message.path == f"/v1/rounds/{round_id}/shares"
        ]
        assert Counter(direct) == {
            (forgetful, True, 409): len(SITES),
            (forgetful, False, 201): len(SITES),
        }
