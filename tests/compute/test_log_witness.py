"""A Compute node signs one history of the log, never a shorter one, whatever it is sent."""

from collections.abc import Sequence
from hashlib import sha256

import httpx

from shoal_protocol.log.entries import Entry
from shoal_protocol.log.notes import (
    ADD_CHECKPOINT,
    Checkpoint,
    Note,
    Submission,
    cosigners,
    read_note,
    sign_note,
)
from shoal_protocol.trust.succession import origin_of
from tests.world.around_node import Federation
from tests.world.logs import MANIFEST, certificate, key_of, rounds, signed, tree, version
from tests.world.parties import client_of, problem_code

ENTRIES: list[Entry] = [version(), *rounds(400)]
OTHER = [version(), *rounds(3), certificate(3), *rounds(200, job=5)]
NODE = "compute-0"


async def submit(
    federation: Federation,
    entries: Sequence[Entry],
    old: int = 0,
    *,
    note: Note | None = None,
    proof: Sequence[bytes] | None = None,
) -> httpx.Response:
    hashes = tree(entries).consistency(min(old, len(entries))) if proof is None else proof
    body = str(Submission(old, hashes, note or signed(entries, []))).encode()
    async with client_of(federation.services[0].app) as http:
        return await http.post(ADD_CHECKPOINT, content=body)


def is_signed(entries: Sequence[Entry], answer: httpx.Response) -> bool:
    assert answer.status_code == 200, answer.text
    return cosigners(signed(entries, []).with_lines(answer.text), MANIFEST).keys() == {NODE}


async def shown(federation: Federation) -> httpx.Response:
    origin = sha256(origin_of(MANIFEST).encode()).hexdigest()
    async with client_of(federation.services[0].app) as http:
        return await http.get(f"/witness/{origin}/checkpoint")


async def test_a_node_signs_what_follows_what_it_signed(federation: Federation) -> None:
    assert problem_code(await shown(federation)) == "unknown-log"
    at = 0
    for size in (3, 3, 4, 256, 257, 700):
        assert is_signed(ENTRIES[:size], await submit(federation, ENTRIES[:size], at))
        at = size
        note = read_note((await shown(federation)).text)
        assert note.checkpoint.size == size
        assert cosigners(note, MANIFEST).keys() == {NODE}


async def test_a_node_signs_no_second_history(federation: Federation) -> None:
    await submit(federation, ENTRIES[:10])
    for size in (10, 11, 300):
        answer = await submit(federation, OTHER[:size], 10)
        assert problem_code(answer) == "wrong-proof", size
    wrong = await submit(federation, ENTRIES[:20], 10, proof=[bytes(32)])
    assert problem_code(wrong) == "wrong-proof"
    assert read_note((await shown(federation)).text).checkpoint.size == 10
    assert is_signed(ENTRIES[:20], await submit(federation, ENTRIES[:20], 10))


async def test_a_node_signs_nothing_that_the_aggregator_did_not(federation: Federation) -> None:
    text = signed(ENTRIES[:5], []).text
    origin = origin_of(MANIFEST)
    for name in ("trainer", NODE):
        note = read_note(f"{text}\n{sign_note(text, origin, key_of(name))}")
        assert problem_code(await submit(federation, ENTRIES[:5], note=note)) == "bad-signature"
    other = Checkpoint("shoal-log/others", 5, bytes(32)).text
    note = read_note(f"{other}\n{sign_note(other, 'shoal-log/others', key_of('aggregator'))}")
    assert problem_code(await submit(federation, ENTRIES[:5], note=note)) == "unknown-log"
    assert (await shown(federation)).status_code == 404
