"""What a node does with all envelopes of an answer: its own first, then the others', or nothing."""

import base64
import json

import httpx
import pytest
from nacl.signing import VerifyKey

from shoal_compute.relaying import MOST_BUNDLES
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import envelope_digest, frame, sign_envelope
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import BadSignature
from shoal_protocol.wire.share_receipts import check_receipt, sign_receipt
from tests.world.around_node import NODES, Federation, envelopes
from tests.world.examples import client_key, signing_key

CLIENT = 3


@pytest.fixture
async def spec(federation: Federation) -> Signed[RoundSpec]:
    announced = federation.spec()
    await federation.announce(announced)
    return announced


async def relayed(
    federation: Federation, spec: Signed[RoundSpec], bundle: list[bytes], node: int = 0
) -> httpx.Response:
    path = f"/v1/rounds/{spec.digest}/shares/relayed"
    return await federation.request(node, "POST", path, frame(bundle))


async def held(federation: Federation, spec: Signed[RoundSpec]) -> list[int]:
    counts = []
    for node in range(NODES):
        reply = await federation.request(node, "GET", f"/v1/rounds/{spec.digest}")
        counts.append(reply.json()["held"])
    return counts


def handed_on(federation: Federation) -> int:
    return sum(path.endswith("/shares/bulk") for _, _, path in federation.wire.requests)


async def test_every_node_signs_that_it_has_its_own(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    bundle = envelopes(spec.body, CLIENT)
    for _ in range(2):  # again: the same
        reply = await relayed(federation, spec, bundle)
        assert reply.status_code == 200, reply.text
        for node, receipt in enumerate(reply.json()["receipts"]):
            key = signing_key(f"compute-{node}").verify_key
            check_receipt(base64.b64decode(receipt), envelope_digest(bundle[node]), key)
        assert await held(federation, spec) == [1] * NODES


async def test_a_stranger_s_bundle_is_refused_and_nothing_of_it_handed_on(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    bundle = envelopes(spec.body, CLIENT)
    bundle[0] = sign_envelope(bundle[0][:-64], client_key(CLIENT + 1))
    reply = await relayed(federation, spec, bundle)
    assert (reply.status_code, json.loads(reply.content)["type"]) == (
        403,
        "urn:shoal:problem:bad-signature",
    )
    assert handed_on(federation) == 0
    assert await held(federation, spec) == [0] * NODES


@pytest.mark.parametrize("what", ["two answers", "not for this node", "twice", "no such node"])
async def test_what_is_not_one_answer_is_refused_whole(
    federation: Federation, spec: Signed[RoundSpec], what: str
) -> None:
    bundle, other = envelopes(spec.body, CLIENT), envelopes(spec.body, CLIENT + 1)
    changed = {
        "two answers": [bundle[0], bundle[1], other[2]],
        "not for this node": bundle[1:],
        "twice": [bundle[0], bundle[1], bundle[1]],
        "no such node": [bundle[0], bundle[1][:7] + b"\x09" + bundle[1][8:]],
    }
    reply = await relayed(federation, spec, changed[what])
    assert json.loads(reply.content)["type"] == "urn:shoal:problem:malformed-envelope"
    assert handed_on(federation) == 0
    assert await held(federation, spec) == [0] * NODES


async def test_too_many_bundles_of_one_holder_are_refused_and_another_s_are_not(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    bundle = envelopes(spec.body, CLIENT)
    for _ in range(MOST_BUNDLES):
        assert (await relayed(federation, spec, bundle)).status_code == 200
    before = handed_on(federation)
    reply = await relayed(federation, spec, bundle)
    assert (reply.status_code, handed_on(federation)) == (503, before)
    other = await relayed(federation, spec, envelopes(spec.body, CLIENT + 1))
    assert other.status_code == 200


async def test_a_node_that_is_away_or_refuses_gives_no_receipt_and_keeps_no_other_from_it(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    bundle = envelopes(spec.body, CLIENT)
    bundle[2] = sign_envelope(bundle[2][:-64], client_key(CLIENT + 1))
    reply = await relayed(federation, spec, bundle)
    assert [bool(each) for each in reply.json()["receipts"]] == [True, True, False]
    federation.wire.cut.add("compute-1.example")
    reply = await relayed(federation, spec, envelopes(spec.body, CLIENT))
    assert [bool(each) for each in reply.json()["receipts"]] == [True, False, True]
    assert await held(federation, spec) == [1] * NODES


def test_a_receipt_is_of_one_envelope_and_one_node() -> None:
    key, digest = signing_key("compute-1"), bytes(range(32))
    receipt = sign_receipt(digest, key)
    check_receipt(receipt, digest, key.verify_key)
    for changed, said, signer in (
        (receipt, bytes(32), key.verify_key),
        (receipt, digest, signing_key("compute-0").verify_key),
        (receipt[:-1] + bytes([receipt[-1] ^ 1]), digest, key.verify_key),
        (b"", digest, key.verify_key),
        (receipt, digest, VerifyKey(bytes(32))),
    ):
        with pytest.raises(BadSignature):
            check_receipt(changed, said, signer)
