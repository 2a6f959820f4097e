"""A node tells a sender which of its envelopes it has, and tells nobody else anything."""

from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import envelope_digest
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.receipt_query import decode_answer, encode_query
from tests.world.around_node import Federation, envelopes

CLIENTS = range(6)


def digests(spec: Signed[RoundSpec], node: int) -> list[tuple[int, bytes]]:
    return [(client, envelope_digest(envelopes(spec.body, client)[node])) for client in CLIENTS]


async def held(
    federation: Federation, spec: Signed[RoundSpec], asked: list[tuple[int, bytes]], node: int = 0
) -> list[bool]:
    path = f"/v1/rounds/{spec.digest}/shares/stored"
    reply = await federation.request(node, "POST", path, encode_query(asked))
    assert reply.status_code == 200, reply.text
    return decode_answer(reply.json()["stored"], len(asked))


async def test_each_envelope_is_held_once_it_was_acknowledged_whatever_comes_then(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    asked = digests(spec, 0)
    assert await held(federation, spec, asked) == [False] * 6
    await federation.upload_all(spec, (1, 4))
    expected = [client in (1, 4) for client in CLIENTS]
    assert await held(federation, spec, asked) == expected
    assert await held(federation, spec, asked[::-1] + asked[:2]) == expected[::-1] + expected[:2]
    federation.crash(0)
    assert await held(federation, spec, asked) == expected
    federation.clock.move(61)
    await federation.step()
    assert await held(federation, spec, asked) == expected


async def test_who_does_not_know_an_envelope_learns_nothing_of_its_sender(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    await federation.upload_all(spec)
    guesses = [(client, envelope_digest(b"a guess")) for client in CLIENTS]
    assert await held(federation, spec, guesses) == [False] * 6
    strangers = [(2**32 - 1, digests(spec, 0)[0][1])]
    assert await held(federation, spec, strangers) == [False]
    assert await held(federation, spec, digests(spec, 1)) == [False] * 6  # another node's
    assert await held(federation, spec, []) == []
