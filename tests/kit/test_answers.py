"""What was answered and is not taken is bounded: in pieces, in sum, and in time."""

import asyncio
import socket
from contextlib import suppress
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Response
from prometheus_client import CollectorRegistry

from shoal_kit.security import server_tls
from shoal_kit.web.answers import BUFFERED_BYTES, PIECE_BYTES
from shoal_kit.web.application import create_application
from shoal_kit.web.serving import BoundedHeads
from shoal_protocol.wire.errors import NotReady
from tests.world.loopback import served
from tests.world.tls_identities import make_identity

LARGE = 1 << 20
ONE = LARGE + BUFFERED_BYTES  # what an answer of this size counts as, alone


async def ready() -> None:
    """Always ready."""


def make_app(unsent_bytes: int = 64 << 20) -> FastAPI:
    app = create_application(
        "t", ready=ready, registry=CollectorRegistry(), unsent_bytes=unsent_bytes
    )
    same = bytes(LARGE)

    @app.get("/same")
    async def shared() -> Response:
        return Response(same)

    @app.get("/own/{number}")
    async def own(number: int) -> Response:
        return Response(number.to_bytes(4, "big") * (LARGE // 4))

    @app.get("/small")
    async def small() -> Response:
        return Response(bytes(PIECE_BYTES))

    return app


class Reader:
    """One request of which the test plays the connection: it takes pieces when told to."""

    def __init__(self, app: FastAPI, path: str) -> None:
        self.room = asyncio.Event()
        self.pieces: list[Any] = []
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b""}
        scope |= {"headers": []}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
            return
        self.pieces.append(message["body"])
        if self.status == 200:
            await self.room.wait()

    @property
    def refused(self) -> bool:
        return self.status == 503


async def turns(count: int = 50) -> None:
    """Let everything go on that can."""
    for _ in range(count):
        await asyncio.sleep(0)


async def reading(app: FastAPI, *paths: str) -> list[Reader]:
    """Ask for all, and take nothing."""
    readers = []
    for path in paths:
        readers.append(Reader(app, path))
        await turns()
    return readers


async def finish(*readers: Reader) -> None:
    for reader in readers:
        reader.room.set()
    await asyncio.gather(*(reader.task for reader in readers))


async def test_answers_that_are_not_taken_are_bounded_in_sum() -> None:
    app = make_app(3 * ONE)
    *held, late = await reading(app, *(f"/own/{number}" for number in range(4)))
    assert [each.refused for each in held] == [False] * 3
    assert late.refused
    assert late.headers[b"retry-after"] == str(NotReady.retry_after_seconds).encode()
    assert b"urn:shoal:problem:not-ready" in late.pieces[0]
    [small] = await reading(app, "/small")
    assert small.status == 200  # what is small is not refused
    await finish(held[0], small, late)
    [again] = await reading(app, "/own/4")
    assert not again.refused  # what was taken made room
    await finish(*held, again)


async def unread(port: int, content: bytes, tls: Any = None) -> asyncio.StreamWriter:
    """Ask, and leave the answer unread."""
    bare = socket.socket()
    bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    bare.setblocking(False)
    await asyncio.get_running_loop().sock_connect(bare, ("127.0.0.1", port))
    name = {"ssl": tls, "server_hostname": "127.0.0.1"} if tls else {}
    _, writer = await asyncio.open_connection(sock=bare, limit=1024, **name)
    writer.write(content)
    await writer.drain()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    return writer


GET = b"GET /%b HTTP/1.1\r\nHost: t\r\n\r\n"


@pytest.mark.parametrize("content", [GET % b"same", GET % b"small" * 17], ids=["one", "pipelined"])
async def test_who_takes_nothing_is_cut(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = asyncio.Event()
    lost = BoundedHeads.connection_lost

    def noted(self: BoundedHeads, exc: Exception | None) -> None:
        cut.set()
        lost(self, exc)

    monkeypatch.setattr(BoundedHeads, "unread_seconds", 0.05)
    monkeypatch.setattr(BoundedHeads, "connection_lost", noted)
    async with served(make_app()) as port:
        writer = await unread(port, content)
        async with asyncio.timeout(60):  # a failure, where it would be a hang
            await cut.wait()
        writer.transport.abort()


async def test_who_reads_slowly_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = 0
    paused = BoundedHeads.pause_writing

    def noted(self: BoundedHeads) -> None:
        nonlocal pauses
        pauses += 1
        paused(self)

    monkeypatch.setattr(BoundedHeads, "pause_writing", noted)
    async with served(make_app()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(GET % b"same")
        received = 0
        while received < LARGE:
            received += len(await reader.read(4096))
            await asyncio.sleep(0)
        writer.close()
    assert pauses > 1  # else nothing was slow


async def test_over_tls_a_connection_buffers_little_of_an_answer(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the application was asked for is what has left, and little more."""
    app, sent = make_app(), 0
    paused = asyncio.Event()
    pause = BoundedHeads.pause_writing

    async def counting(scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: Any) -> None:
            nonlocal sent
            sent += len(message.get("body", b""))
            await send(message)

        await app(scope, receive, counted)

    def noted(self: BoundedHeads) -> None:
        pause(self)
        paused.set()

    @app.get("/huge")
    async def huge() -> Response:
        return Response(bytes(64 << 20))

    monkeypatch.setattr(BoundedHeads, "pause_writing", noted)
    identity = make_identity()
    certificate, key = identity.write(tmp_path)
    tls = httpx.create_ssl_context(verify=False)
    async with served(counting, server_tls(certificate, key, identity.pem)) as port:
        writer = await unread(port, GET % b"huge", tls)
        async with asyncio.timeout(60):
            await paused.wait()
        await turns()
        few = sent < 4 << 20  # of 64 MiB: the system's buffers on both sides, and ours
        writer.transport.abort()
    assert few


async def test_a_head_of_many_fields_ends_the_connection() -> None:
    async with asyncio.timeout(60), served(make_app()) as port:
        for fields, answered in ((90, True), (101, False)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /small HTTP/1.1\r\nHost: t\r\nConnection: close\r\n")
            writer.write(b"a: b\r\n" * (fields - 2) + b"\r\n")
            received = b""
            with suppress(ConnectionResetError):
                received = await reader.read()
            assert received.startswith(b"HTTP/1.1 200 OK") is answered
            writer.close()
