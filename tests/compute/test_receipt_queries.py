"""A node tells a sender which of its envelopes it has, and tells nobody else anything."""

from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import envelope_digest, receipt_query
from shoal_protocol.wire.documents import Signed
from tests.world.around_node import Federation, envelopes
from tests.world.parties import problem_code

CLIENTS = range(6)


def digests(spec: Signed[RoundSpec], node: int) -> list[tuple[int, bytes]]:
    return [(client, envelope_digest(envelopes(spec.body, client)[node])) for client in CLIENTS]


async def held(
    federation: Federation, spec: Signed[RoundSpec], asked: list[tuple[int, bytes]], node: int = 0
) -> list[bool]:
    path, answers = f"/v1/rounds/{spec.digest}/shares/stored", []
    for holder, digest in asked:
        reply = await federation.request(node, "POST", path, receipt_query(holder, digest))
        assert reply.status_code == 200, reply.text
        answers.append(reply.json()["stored"])
    return answers


async def test_each_envelope_is_held_once_it_was_acknowledged_whatever_comes_then(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    asked = digests(spec, 0)
    assert await held(federation, spec, asked) == [False] * 6
    await federation.upload_all(spec, (1, 4))
    expected = [client in (1, 4) for client in CLIENTS]
    assert await held(federation, spec, asked) == expected
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


async def test_a_query_of_another_length_is_refused(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    path, query = f"/v1/rounds/{spec.digest}/shares/stored", receipt_query(*digests(spec, 0)[0])
    for content in (b"", query[:-1]):
        reply = await federation.request(0, "POST", path, content)
        assert problem_code(reply) == "malformed-document"
