"""What a node takes of clients, what it refuses, and what is durable when it says so."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import Header, frame, seal
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.wire.documents import Signed
from tests.world import examples
from tests.world.around_node import SECOND, Federation, envelopes
from tests.world.examples import answer_id, client_key, random_bytes


def sealed(
    spec: Signed[RoundSpec],
    *,
    client: int = 3,
    node: int = 0,
    kind: ShareKind = ShareKind.VECTOR,
    payload: bytes | None = None,
    manifest: str | None = None,
    round_id: str | None = None,
    key_of: int | None = None,
    box_of: int | None = None,
) -> bytes:
    """Seal an envelope for node 0 that is right but for what is given."""
    due = 8 * spec.body.dimension if kind is ShareKind.VECTOR else 32
    return seal(
        Share(kind, bytes(due) if payload is None else payload),
        Header(
            kind,
            node,
            client,
            manifest or spec.body.manifest,
            round_id or spec.digest,
            answer_id(client),
        ),
        box_key=examples.box_key(node if box_of is None else box_of),
        key=client_key(client if key_of is None else key_of),
        random_bytes=random_bytes("ephemeral"),
    )


async def refusal(federation: Federation, spec: Signed[RoundSpec], envelope: bytes) -> str:
    before = (await federation.state(0, spec))["held"]
    reply = await federation.upload(0, spec, envelope)
    assert reply.status_code >= 400
    assert reply.headers["content-type"] == "application/problem+json"
    assert (await federation.state(0, spec))["held"] == before
    return str(reply.json()["type"]).removeprefix("urn:shoal:problem:")


async def test_an_envelope_is_stored_once_however_often_it_is_sent(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    envelope = envelopes(spec.body, 3)[0]
    assert (await federation.upload(0, spec, envelope)).status_code == 201
    assert (await federation.upload(0, spec, envelope)).status_code == 200
    assert (await federation.state(0, spec))["held"] == 1


async def test_many_concurrent_copies_of_an_envelope_count_once(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    envelope = envelopes(spec.body, 3)[0]
    replies = await asyncio.gather(*(federation.upload(0, spec, envelope) for _ in range(20)))
    assert sorted(reply.status_code for reply in replies) == [200] * 19 + [201]
    assert (await federation.state(0, spec))["held"] == 1


async def test_of_two_different_envelopes_of_a_client_one_is_stored(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    attempts = [envelopes(spec.body, 3, attempt=str(number))[0] for number in range(5)]
    replies = await asyncio.gather(*(federation.upload(0, spec, each) for each in attempts))
    assert sorted(reply.status_code for reply in replies) == [201] + [409] * 4
    [stored] = [
        each for each, reply in zip(attempts, replies, strict=True) if reply.status_code == 201
    ]
    federation.crash(0)
    assert (await federation.upload(0, spec, stored)).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("wrong-round", {"round_id": "0" * 64}),
        ("wrong-manifest", {"manifest": "0" * 64}),
        ("wrong-node", {"node": 1, "client": 1}),
        ("unknown-holder", {"client": 20}),
        ("not-in-population", {"client": 12}),
        ("bad-signature", {"key_of": 4}),
        ("unopenable-ciphertext", {"box_of": 1}),
        ("wrong-share", {"kind": ShareKind.SEED}),
        ("wrong-share", {"payload": bytes(8)}),
        ("wrong-share", {"payload": bytes(800)}),
        ("malformed-envelope", {"payload": b""}),
    ],
)
async def test_an_envelope_that_is_wrong_in_one_thing_is_refused_for_it(
    federation: Federation, spec: Signed[RoundSpec], code: str, wrong: dict
) -> None:
    assert await refusal(federation, spec, sealed(spec, **wrong)) == code
    assert (await federation.upload(0, spec, sealed(spec))).status_code == 201


async def test_a_ciphertext_moved_to_another_holder_is_refused(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    taken = sealed(spec, client=3)
    header = Header(ShareKind.VECTOR, 0, 6, spec.body.manifest, spec.digest, answer_id(3)).encode()
    content = header + taken[92:-64]
    message = b"shoal/v1/share_envelope\n" + content
    moved = content + client_key(6).sign(message).signature
    assert await refusal(federation, spec, moved) == "transplanted-ciphertext"


async def test_a_client_revoked_since_the_round_began_is_refused(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    federation.revoke(0, [3])
    assert await refusal(federation, spec, envelopes(spec.body, 3)[0]) == "revoked-holder"
    assert (await federation.upload(0, spec, envelopes(spec.body, 4)[0])).status_code == 201


@pytest.mark.parametrize("path", ["0" * 64, "0", "A" * 64, "x" * 64])
async def test_an_unknown_round_is_a_problem_that_says_so(
    federation: Federation, spec: Signed[RoundSpec], path: str
) -> None:
    envelope = envelopes(spec.body, 3)[0]
    for suffix, body in (("", envelope), ("/bulk", frame([envelope]))):
        url = f"/v1/rounds/{path}/shares{suffix}"
        reply = await federation.request(0, "POST", url, body)
        assert (reply.status_code, reply.json()["type"]) == (404, "urn:shoal:problem:unknown-round")


async def test_each_envelope_of_a_bulk_stands_or_falls_by_itself(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    good = [envelopes(spec.body, client)[0] for client in range(6)]
    body = frame(
        [
            good[0],
            b"junk",
            good[1],
            sealed(spec, client=12),
            good[1],
            envelopes(spec.body, 1, attempt="second")[0],
            b"",
            *good[2:],
        ]
    )
    path = f"/v1/rounds/{spec.digest}/shares/bulk"
    reply = await federation.request(0, "POST", path, body)
    outcomes = reply.json()["outcomes"]
    assert [each["status"] for each in outcomes] == [
        201,
        400,
        201,
        403,
        200,
        409,
        400,
        *[201] * 4,
    ]
    assert outcomes[3]["problem"]["type"] == "urn:shoal:problem:not-in-population"
    assert (await federation.state(0, spec))["held"] == 6


@pytest.mark.slow
@pytest.mark.parametrize("tail", [b"\x01", b"\xff\xff\xff\xff", b"\x05\x00\x00\x00abcd"])
async def test_a_bulk_that_is_cut_short_is_refused_as_a_whole(
    federation: Federation, spec: Signed[RoundSpec], tail: bytes
) -> None:
    body = frame([envelopes(spec.body, 3)[0]]) + tail
    path = f"/v1/rounds/{spec.digest}/shares/bulk"
    reply = await federation.request(0, "POST", path, body)
    assert reply.json()["type"] == "urn:shoal:problem:malformed-envelope"
    assert (await federation.state(0, spec))["held"] == 0


async def test_a_late_bulk_tells_what_is_stored_and_refuses_the_rest(
    federation: Federation, spec: Signed[RoundSpec]
) -> None:
    await federation.upload_all(spec, range(3), nodes=[0])
    federation.clock.move(60)
    offered = [*(envelopes(spec.body, client)[0] for client in range(5)), b"junk"]
    path = f"/v1/rounds/{spec.digest}/shares/bulk"
    reply = await federation.request(0, "POST", path, frame(offered))
    statuses = [each["status"] for each in reply.json()["outcomes"]]
    assert statuses == [200] * 3 + [410] * 2 + [400]


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Hold the database's write lock from another connection."""
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def make_impatient(federation: Federation, node: int) -> None:
    """Let a node's connections give up on a lock at once, not after seconds."""

    def hurry(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute("PRAGMA busy_timeout=1")

    event.listen(engine_of(federation, node), "checkout", hurry)


def engine_of(federation: Federation, node: int) -> object:
    return federation.services[node].resources.storage._engine


async def test_while_the_database_is_locked_nothing_is_acknowledged(
    federation: Federation, spec: Signed[RoundSpec], tmp_path: Path
) -> None:
    make_impatient(federation, 0)
    envelope = envelopes(spec.body, 3)[0]
    good, bad = envelopes(spec.body, 4)[0], envelopes(spec.body, 5)[1]  # bad: another node's
    path = f"/v1/rounds/{spec.digest}/shares/bulk"
    with locked(tmp_path / "0" / "service.sqlite"):
        reply = await federation.upload(0, spec, envelope)
        bulk = await federation.request(0, "POST", path, frame([envelope, good]))
        mixed = await federation.request(0, "POST", path, frame([envelope, bad]))
        not_ready = await federation.request(0, "GET", "/readyz")
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "2")
    assert reply.json()["type"] == "urn:shoal:problem:storage-unavailable"
    assert (bulk.status_code, bulk.headers["retry-after"]) == (503, "2")
    assert [each["status"] for each in mixed.json()["outcomes"]] == [503, 409]
    assert not_ready.status_code == 503
    assert (await federation.state(0, spec))["held"] == 0
    assert (await federation.upload(0, spec, envelope)).status_code == 201


@pytest.mark.slow
async def test_a_full_disk_refuses_and_loses_nothing_that_was_acknowledged(
    federation: Federation, tmp_path: Path
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    assert (await federation.upload(0, spec, envelopes(spec.body, 0)[0])).status_code == 201

    def fill(connection: sqlite3.Connection, *_: object) -> None:
        connection.execute("PRAGMA max_page_count=1")  # no more than there are

    event.listen(engine_of(federation, 0), "checkout", fill)
    rounds = [federation.spec(number=number, mu=0.01) for number in range(1, 40)]
    announced = [
        (await federation.request(0, "POST", "/v1/rounds", each.encode())).status_code
        for each in rounds
    ]
    uploaded = [
        (await federation.upload(0, spec, envelopes(spec.body, client)[0])).status_code
        for client in range(1, 12)
    ]
    assert set(announced) <= {201, 503}
    assert announced[-1] == 503
    event.remove(engine_of(federation, 0), "checkout", fill)
    federation.crash(0)
    for each, status in zip(rounds, announced, strict=True):
        again = await federation.request(0, "POST", "/v1/rounds", each.encode())
        assert again.status_code == (200 if status == 201 else 201)
    for client, status in enumerate(uploaded, start=1):
        reply = await federation.upload(0, spec, envelopes(spec.body, client)[0])
        assert reply.status_code == (200 if status == 201 else 201)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_hostile_bodies_get_a_clear_refusal_and_store_nothing(
    federation: Federation, data: st.DataObject
) -> None:
    spec = federation.spec(opened_at=federation.clock() + SECOND)
    await federation.request(0, "POST", "/v1/rounds", spec.encode())
    whole = envelopes(spec.body, 3)[0]
    base = f"/v1/rounds/{spec.digest}"
    rest = b',"time":"2026-03-01T12:00:00.000Z","wanted":[]}'
    path, valid = data.draw(
        st.sampled_from(
            [
                (f"{base}/shares", whole),
                (f"{base}/shares/bulk", frame([whole])),
                ("/v1/rounds", federation.spec(number=9).encode()),
                ("/v1/gossip", b'{"documents":[],"known":{"' + b"0" * 64 + b'":[]}' + rest),
                ("/v1/gossip", b'{"documents":[' + spec.encode() + b'],"known":{}' + rest),
            ]
        )
    )
    body = data.draw(st.binary(max_size=400) | damaged(valid))
    reply = await federation.request(0, "POST", path, body)
    assert reply.status_code < 500
    if reply.status_code >= 400:
        assert reply.headers["content-type"] == "application/problem+json"
        assert set(reply.json()) == {"type", "title", "status", "detail", "remedy"}
    assert (await federation.state(0, spec))["held"] == 0


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Cut, flip or double part of `content`, and never leave it whole."""
    start = draw(st.integers(0, len(content) - 1))
    end = draw(st.integers(start + 1, len(content)))
    flipped = bytes(byte ^ draw(st.integers(1, 255)) for byte in content[start : start + 1])
    return draw(
        st.sampled_from(
            [
                content[:start],
                content[:start] + flipped + content[start + 1 :],
                content[:start] + content[end:],
                content[:end] + content[start:],
            ]
        )
    )
