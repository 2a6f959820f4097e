"""A simulated crowd's wire and patience: without an answer the same bytes are sent again."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal_client.crowds.crowd import Crowd
from shoal_client.crowds.trainer import Outcome, Sent
from shoal_client.peer import ACKNOWLEDGED, Unavailable
from shoal_client.swarm import crowds, lines
from shoal_client.swarm.crowds import CrowdSwarm
from shoal_client.swarm.lines import Line, Tally
from shoal_client.swarm.metering import DRAW
from shoal_protocol.documents import Signed
from shoal_protocol.draw_and_discard.documents import Draw
from tests.client.world import World
from tests.protocol.crowd_examples import (
    CROWD_CONSORTIUM,
    CROWD_DOCUMENTS,
    CROWD_JOB,
    KEY,
    OPENING,
    RECORD,
)

PATH = f"/v1/crowds/{'a' * 64}/draws"
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Writer:
    """What goes out, kept."""

    def __init__(self, goodbye: Exception | None = None) -> None:
        self.sent = bytearray()
        self.closed = self.gone = False
        self.transport = self
        self._goodbye = goodbye

    def write(self, content: bytes) -> None:
        self.sent += content

    async def drain(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        self.closed = True

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)
        if self._goodbye is not None:
            raise self._goodbye
        self.gone = True

    def abort(self) -> None:
        self.gone = True


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, Writer]]:
    """Answer each connection by what the list has next; the writers come into it."""
    opened: list[tuple[bytes, Writer]] = []

    async def connect(*where: object, **how: object) -> tuple[asyncio.StreamReader, Writer]:
        answer, writer = opened[connect.count]  # type: ignore[attr-defined]
        connect.count += 1  # type: ignore[attr-defined]
        reader = asyncio.StreamReader()
        reader.feed_data(answer)
        reader.feed_eof()
        return reader, writer

    connect.count = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(lines.asyncio, "open_connection", connect)
    return opened


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\ncut short",
        b"HTTP/1.1 200 OK\r\n\r\nno length",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    ],
    ids=repr,
)
async def test_what_is_no_answer_is_counted_and_the_line_is_opened_anew(
    world: World, connections: list[tuple[bytes, Writer]], answer: bytes
) -> None:
    connections += [(answer, Writer()), (GOOD, Writer())]
    tally = Tally(lambda: 0.0)
    line = Line(world.consortium.manifest.trainer, tally)
    with pytest.raises(Unavailable):
        await line.post(PATH, b"{}", "application/json")
    assert sum(tally.errors.values()) == 1
    if b"503" in answer:  # the connection as such is whole
        await line.close()
    found = await line.post(PATH, b"{}", "application/json")
    assert (found.status, found.body) == (200, b"ok")
    assert connections[0][1].closed
    assert bytes(connections[1][1].sent).endswith(b"Content-Length: 2\r\n\r\n{}")
    assert tally.figures()[DRAW].count == (2 if b"503" in answer else 1)
    await line.close()


@pytest.mark.parametrize("goodbye", [None, ConnectionResetError(), TimeoutError()], ids=repr)
async def test_a_line_that_was_closed_leaves_nothing_open_whatever_the_other_side_does(
    world: World, connections: list[tuple[bytes, Writer]], goodbye: Exception | None
) -> None:
    writer = Writer(goodbye)
    connections.append((GOOD, writer))
    line = Line(world.consortium.manifest.trainer, Tally(lambda: 0.0))
    await line.post(PATH, b"{}", "application/json")
    await line.close()
    assert writer.closed and writer.gone


class Flaky:
    """A trainer that is not there at first, then does not know, then acknowledges."""

    def __init__(self) -> None:
        self.nonces: list[Sequence[str]] = []
        self.sent: list[bytes] = []

    async def draw(self, crowd: Crowd, nonces: Sequence[str]) -> list[Signed[Draw]]:
        self.nonces.append(nonces)
        if len(self.nonces) == 1:
            raise Unavailable("not there")
        return [CROWD_DOCUMENTS["draw"]]

    async def submit(self, crowd: Crowd, sent: Sequence[Sent]) -> list[Outcome | None]:
        self.sent += [each.document for each in sent]
        if len(self.sent) == 1:
            raise Unavailable("not there")
        if len(self.sent) == 2:
            return [None]
        return [Outcome(ACKNOWLEDGED, CROWD_DOCUMENTS["submission_receipt"].encode())]


async def test_a_phone_asks_with_the_same_nonce_and_sends_the_same_bytes_until_it_is_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowds, "_PAUSE_SECONDS", 0.0)
    swarm = CrowdSwarm(
        book=world.book, job=CROWD_JOB.digest, keys=[KEY], records=RECORD, monotonic=lambda: 0.0
    )
    swarm._clients = [0]
    trainer: Any = Flaky()
    crowd = Crowd(CROWD_JOB, OPENING, CROWD_CONSORTIUM)
    await swarm._contribute(trainer, crowd, range(1), np.array([[7]]))
    assert trainer.nonces[0] == trainer.nonces[1] and len(trainer.nonces) == 2
    assert len(trainer.sent) == 3 and len(set(trainer.sent)) == 1
    assert swarm.done == 1


async def test_phones_that_share_a_request_ask_again_for_the_draws_that_did_not_come(
    world: World,
) -> None:
    asked: list[list[str]] = []

    class Busy:
        async def draw(self, crowd: Crowd, nonces: Sequence[str]) -> list[str]:
            asked.append(list(nonces))
            return [f"drawn by {each}" for each in nonces[:2]]

    swarm = CrowdSwarm(
        book=world.book, job=CROWD_JOB.digest, keys=[KEY], records=RECORD, monotonic=lambda: 0.0
    )
    trainer: Any = Busy()
    crowd = Crowd(CROWD_JOB, OPENING, CROWD_CONSORTIUM)
    drawn: list[Any] = await swarm._draw(trainer, crowd, ["a", "b", "c"])
    assert drawn == ["drawn by a", "drawn by b", "drawn by c"]
    assert asked == [["a", "b", "c"], ["c"]]


async def test_a_crowd_gives_up_on_a_trainer_that_never_answers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        async def draw(self, crowd: Crowd, nonces: Sequence[str]) -> list[Signed[Draw]]:
            raise Unavailable("not there")

    monkeypatch.setattr(crowds, "_PAUSE_SECONDS", 0.0)
    swarm = CrowdSwarm(
        book=world.book, job=CROWD_JOB.digest, keys=[KEY], records=RECORD, monotonic=lambda: 0.0
    )
    swarm._clients = [0]
    trainer: Any = Silent()
    crowd = Crowd(CROWD_JOB, OPENING, CROWD_CONSORTIUM)
    with pytest.raises(Unavailable):
        await swarm._contribute(trainer, crowd, range(1), np.array([[7]]))
    assert swarm.done == 0
