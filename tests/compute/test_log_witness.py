"""A Compute node signs one history of the log, never a shorter one, whatever it is sent."""

from collections.abc import Sequence

import httpx

from shoal_protocol.log.checkpoints import Cosignature, Entry, Witnessed
from shoal_protocol.log.entries import CHECKPOINTS, Submission
from shoal_protocol.wire.documents import decode, sign
from tests.world import examples
from tests.world.around_node import Federation
from tests.world.logs import certificate, digest, hashes, key_of, rounds, signed, version
from tests.world.parties import client_of, problem_code

ENTRIES: list[Entry] = [version(), *rounds(400)]
OTHER = [version(), *rounds(3), certificate(3), *rounds(200, job=5)]
NODE = "compute-0"


async def submit(
    federation: Federation,
    entries: Sequence[Entry],
    old: int = 0,
    *,
    shown: Witnessed | None = None,
    after: Sequence[str] | None = None,
) -> httpx.Response:
    between = hashes(entries[old:]) if after is None else after
    checkpoint = (shown or signed(entries, [])).checkpoint
    body = Submission(after=tuple(between), checkpoint=checkpoint).encode()
    async with client_of(federation.services[0].app) as http:
        return await http.post(CHECKPOINTS, content=body)


def is_signed(entries: Sequence[Entry], answer: httpx.Response) -> bool:
    assert answer.status_code == 200, answer.text
    signature = decode(answer.content, Cosignature)
    checkpoint = signed(entries, []).checkpoint
    both = Witnessed(checkpoint=checkpoint, cosignatures=(signature,))
    return both.cosigners(examples.CONSORTIUM).keys() == {NODE}


async def shown(federation: Federation) -> httpx.Response:
    async with client_of(federation.services[0].app) as http:
        return await http.get(CHECKPOINTS)


async def size_shown(federation: Federation) -> int:
    return Witnessed.decode((await shown(federation)).content).checkpoint.body.size


async def test_a_node_signs_what_follows_what_it_signed(federation: Federation) -> None:
    assert problem_code(await shown(federation)) == "unknown-log"
    at = 0
    for size in (3, 3, 4, 256, 257, 700):
        assert is_signed(ENTRIES[:size], await submit(federation, ENTRIES[:size], at))
        at = size
        seen = Witnessed.decode((await shown(federation)).content)
        assert seen.checkpoint.body.size == size
        assert seen.cosigners(examples.CONSORTIUM).keys() == {NODE}


async def test_a_node_signs_no_second_history(federation: Federation) -> None:
    await submit(federation, ENTRIES[:10])
    for size in (10, 11, 300):
        answer = await submit(federation, OTHER[:size], 10)
        assert problem_code(answer) == "wrong-proof", size
    wrong = await submit(federation, ENTRIES[:11], after=[digest(1)])
    assert problem_code(wrong) == "wrong-proof"
    for size, old in ((5, 0), (10, 0), (20, 0), (20, 9), (20, 11)):
        assert problem_code(await submit(federation, ENTRIES[:size], old)) == "wrong-start"
    assert await size_shown(federation) == 10
    assert is_signed(ENTRIES[:20], await submit(federation, ENTRIES[:20], 10))


async def test_a_node_signs_nothing_that_the_aggregator_did_not(federation: Federation) -> None:
    body = signed(ENTRIES[:5], []).checkpoint.body
    others = body.model_copy(update={"consortium": "others"})
    for checkpoint, code in (
        (sign(body, "aggregator", key_of("trainer")), "bad-signature"),
        (sign(body, NODE, key_of(NODE)), "wrong-signer"),
        (sign(others, "aggregator", key_of("aggregator")), "malformed-document"),
    ):
        forged = Witnessed(checkpoint=checkpoint)
        assert problem_code(await submit(federation, ENTRIES[:5], shown=forged)) == code
    assert (await shown(federation)).status_code == 404
