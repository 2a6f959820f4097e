"""Envelopes under sessions that come together are judged, and stored, as each would be alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event

from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import frame
from shoal_protocol.sharing.schemes import ADDITIVE, Sharing
from shoal_protocol.sharing.session_envelope import SessionHeader, SessionWrapping, seed_for, wrap
from shoal_protocol.sharing.sessions import Prekey, advance, hour_for, open_session
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.sharing.threshold import ThresholdSharing
from shoal_protocol.wire.documents import Role, Signed, decode, sign
from tests.world.around_node import Federation, contribution, expected
from tests.world.examples import POLICY, answer_id, client_key, random_bytes
from tests.world.parties import reachable

HOLDERS = range(12)
NODES = range(3)
HOUR = 3600


class Sessions:
    """Sessions of all data holders with all nodes of a federation."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.number = int(federation.clock().timestamp())
        self.chains: dict[int, dict[str, bytes]] = {}

    async def open(self) -> None:
        prekeys = []
        for node in NODES:
            reply = await self.federation.request(node, "GET", "/v1/prekey")
            prekeys.append(decode(reply.content, Prekey).body)
        openings = []
        for holder in HOLDERS:
            opening, self.chains[holder] = open_session(
                prekeys,
                holder=holder,
                number=self.number,
                previous=None,
                random_bytes=random_bytes(f"session {holder}"),
            )
            openings.append(sign(opening, Role.HOLDER, client_key(holder)).encode())
        for node in NODES:
            body = b'{"documents":[' + b",".join(openings) + b"]}"
            assert (await self.federation.request(node, "POST", "/v1/openings", body)).is_success

    def key(self, spec: Signed[RoundSpec], holder: int, node: int) -> bytes:
        steps = hour_for(self.number, spec.body.opened_at) - self.number // HOUR
        return advance(self.chains[holder][f"compute-{node}"], steps)

    def envelopes(self, spec: Signed[RoundSpec], holder: int) -> list[bytes]:
        """Return the envelopes of one answer, by node."""
        sharing = spec.body.sharing
        kinds = [sharing.kind_for(holder=holder, node=node, nodes=3) for node in NODES]
        wrappings = {
            ShareKind.SEED: SessionWrapping.NOTICE,
            ShareKind.VECTOR: SessionWrapping.VECTOR,
        }
        headers = [
            SessionHeader(
                wrappings[kind], node, holder, self.number, spec.digest, answer_id(holder, "first")
            )
            for node, kind in enumerate(kinds)
        ]
        keys = [self.key(spec, holder, node) for node in NODES]
        seeds = iter(
            seed_for(headers[node], keys[node], manifest=spec.body.manifest)
            for node, kind in enumerate(kinds)
            if kind is ShareKind.SEED
        )
        shares = sharing.split(
            sharing.encode(contribution(holder, spec.body.dimension)),
            holder=holder,
            nodes=3,
            random_bytes=lambda _: next(seeds),
        )
        return [
            wrap(share, header, key=key, manifest=spec.body.manifest)
            for share, header, key in zip(shares, headers, keys, strict=True)
        ]


THRESHOLD = POLICY.model_copy(update={"minimum_threshold": 2})


async def announced(federation: Federation, **changes: Any) -> tuple[Sessions, Signed[RoundSpec]]:
    sessions = Sessions(federation)
    await sessions.open()
    spec = federation.spec(wrapping="session", **changes)
    await federation.announce(spec)
    return sessions, spec


async def upload(
    federation: Federation, node: int, spec: Signed[RoundSpec], envelopes: list[bytes]
) -> list[Any]:
    path = f"/v1/rounds/{spec.digest}/shares/bulk"
    reply = await federation.request(node, "POST", path, frame(envelopes))
    assert reply.status_code == 200, reply.text
    return [each if each["status"] > 201 else each["status"] for each in reply.json()["outcomes"]]


async def test_answers_that_come_together_add_up(federation: Federation) -> None:
    sessions, spec = await announced(federation)
    made = [sessions.envelopes(spec, holder) for holder in HOLDERS]
    for node in NODES:
        mine = [each[node] for each in made]
        assert await upload(federation, node, spec, mine) == [201] * 12
        assert await upload(federation, node, spec, mine) == [200] * 12
    await federation.step(times=3)
    assert np.array_equal(federation.result(spec), expected(spec.body, HOLDERS))
    assert await upload(federation, 0, spec, [each[0] for each in made]) == [200] * 12


def wrong_ones(sessions: Sessions, spec: Signed[RoundSpec]) -> dict[str, bytes]:
    """Return envelopes for node 0 that are wrong in one thing each, or at least strange."""
    own = sessions.envelopes(spec, 4)[0]  # a notice: node 1 has the vector
    answer = answer_id(4, "first")
    forged = SessionHeader(SessionWrapping.NOTICE, 0, 4, sessions.number, spec.digest, answer)

    def made(header: SessionHeader, share: Share | None = None) -> bytes:
        key = sessions.key(spec, header.holder % 12, 0)
        share = share or Share(ShareKind.SEED, seed_for(header, key, manifest=spec.body.manifest))
        return wrap(share, header, key=key, manifest=spec.body.manifest)

    vector = Share(ShareKind.VECTOR, bytes(8 * spec.body.dimension))
    as_vector = replace(forged, wrapping=SessionWrapping.VECTOR)
    return {
        "of another node": made(replace(forged, node=1)),
        "of another round": made(replace(forged, round_id="0" * 64)),
        "of another session": made(replace(forged, number=sessions.number + 1)),
        "of nobody": made(replace(forged, holder=4000)),
        "of another holder": own[:8] + (5).to_bytes(4, "little") + own[12:],
        "of another version": own[:5] + b"\x07" + own[6:],
        "cut short": own[:70],
        "empty": b"",
        "damaged": own[:-1] + bytes([own[-1] ^ 1]),
        "a vector where a seed is due": made(as_vector, vector),
        "a notice where a vector is due": made(replace(forged, holder=3)),
        "an explicit seed": made(
            replace(forged, wrapping=SessionWrapping.SEED, holder=7),
            Share(ShareKind.SEED, bytes(32)),
        ),
        "too large a residue": made(
            replace(as_vector, holder=3), Share(ShareKind.VECTOR, b"\xff" * 8 * spec.body.dimension)
        ),
    }


@pytest.mark.parametrize("sharing", [ADDITIVE, ThresholdSharing(threshold=2)])
async def test_each_is_refused_as_it_is_alone(tmp_path: Path, sharing: Sharing) -> None:
    federation = Federation(tmp_path, trust=reachable(policy=THRESHOLD))
    sessions, spec = await announced(federation, sharing=sharing)
    honest = [sessions.envelopes(spec, holder) for holder in HOLDERS]
    wrong = wrong_ones(sessions, spec)
    alone = {}
    for what, envelope in wrong.items():
        if what != "an explicit seed":
            reply = await federation.upload(0, spec, envelope)
            alone[what] = reply.json() if reply.status_code > 201 else reply.status_code
    mine = [each[0] for each in honest if each[0][8] not in (3, 7)]
    taken = [*mine[:5], *wrong.values(), *mine[5:]]
    found = await upload(federation, 0, spec, taken)
    assert found[:5] == [201] * 5 and found[5 + len(wrong) :] == [201] * 5
    for what, status in zip(wrong, found[5:], strict=False):
        if what == "an explicit seed":
            assert status == 201
        elif isinstance(alone[what], int):  # the residue, in the ring: it was stored alone
            assert (alone[what], status) == (201, 200)
        else:
            assert status["problem"] == alone[what], what
    others = 1 + isinstance(alone["too large a residue"], int)
    assert (await federation.state(0, spec))["held"] == 10 + others
    await federation.close()


async def test_a_revoked_holders_envelope_is_refused_among_others(federation: Federation) -> None:
    sessions, spec = await announced(federation)
    federation.revoke(0, [4])
    mine = [sessions.envelopes(spec, holder)[0] for holder in HOLDERS]
    found = await upload(federation, 0, spec, mine)
    assert found.pop(4)["problem"]["type"].endswith("revoked-holder")
    assert found == [201] * 11


@contextmanager
def dying_commit(federation: Federation, *, after: bool) -> Iterator[None]:
    """Let node 0's next commit fail, or its process die once it is durable."""
    engine = federation.services[0].resources.storage._engine
    name = "commit"

    def die(connection: Any) -> None:
        if after:
            connection.connection.driver_connection.commit()
        raise OSError("the machine is gone")

    event.listen(engine, name, die)
    try:
        yield
    finally:
        event.remove(engine, name, die)


@pytest.mark.parametrize("after", [False, True])
async def test_what_was_not_acknowledged_may_be_sent_again_and_counts_once(
    federation: Federation, after: bool
) -> None:
    sessions, spec = await announced(federation)
    made = [sessions.envelopes(spec, holder) for holder in HOLDERS]
    mine = [each[0] for each in made]
    assert await upload(federation, 0, spec, mine[:4]) == [201] * 4
    with dying_commit(federation, after=after), pytest.raises(AssertionError, match="internal"):
        await upload(federation, 0, spec, mine)
    federation.crash(0)
    assert (await federation.state(0, spec))["held"] == (12 if after else 4)
    assert await upload(federation, 0, spec, mine) == (
        [200] * 12 if after else [200] * 4 + [201] * 8
    )
    for node in NODES[1:]:
        assert await upload(federation, node, spec, [each[node] for each in made]) == [201] * 12
    await federation.step(times=3)
    assert np.array_equal(federation.result(spec), expected(spec.body, HOLDERS))
