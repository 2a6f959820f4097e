"""A connection is not held by a request whose head never ends."""

import asyncio

import pytest
from fastapi import Request
from prometheus_client import CollectorRegistry

from shoal_kit.web.application import create_application
from shoal_kit.web.serving import BoundedHeads
from tests.world.loopback import served


async def ready() -> None:
    """Always ready."""


async def send(*parts: bytes) -> bytes:
    """Send `parts` one by one, and return what comes back until the server closes."""
    app = create_application("t", ready=ready, registry=CollectorRegistry())

    @app.post("/late")
    async def header(request: Request) -> str:
        await request.body()
        return request.headers.get("x-late", "no such header")

    @app.post("/body")
    async def length(request: Request) -> int:
        return len(await request.body())

    async with asyncio.timeout(60), served(app) as port:  # a failure, where it would be a hang
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        received = b""
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            received = await reader.read()
        except ConnectionResetError:
            pass  # closed while we were still sending
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        return received


@pytest.mark.parametrize("start", [b"", b"GET", b"GET /healthz HTTP/1.1\r\nHost: t\r\nX-Never: "])
async def test_a_head_that_does_not_end_in_time_ends_the_connection(
    start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedHeads, "head_seconds", 0.05)
    assert await send(start) == b""


async def test_a_second_head_that_does_not_end_in_time_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BoundedHeads, "head_seconds", 0.5)  # for the first, too
    received = await send(b"GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n", b"GET /healthz HTT")
    assert received.count(b"HTTP/1.1 200 OK") == 1


@pytest.mark.parametrize(
    "endless",
    [b"GET /" + b"x" * 70_000, b"GET / HTTP/1.1\r\n" + b"X-Y: z\r\n" * 9_000],
)
async def test_a_head_that_is_too_long_ends_the_connection(
    endless: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedHeads, "head_seconds", 3600.0)
    assert await send(endless) == b""


CHUNKED = b"POST /%b HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "endless",
    [
        [b"0\r\nA: "] + [b"x" * 10_000] * 8,
        [b"0\r\n"] + [b"A: b\r\n" * 1_000] * 12,
        [b"1;"] + [b"x" * 10_000] * 8,
        [b"1\r\nx\r\n" * 1_000] * 20,
    ],
    ids=["a trailer", "many trailers", "a chunk extension", "chunks of one byte"],
)
async def test_what_is_neither_head_nor_body_ends_the_connection_when_it_is_too_long(
    endless: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedHeads, "head_seconds", 3600.0)
    assert await send(CHUNKED % b"body", *endless) == b""


async def test_few_requests_wait_behind_one_that_is_not_answered() -> None:
    unfinished = b"POST /body HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\n\r\n"
    get = b"GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
    assert (await send(unfinished + b"x" + get * 15 + last)).count(b"HTTP/1.1 200 OK") == 17
    assert await send(unfinished + b"x" + get * 17) == b""
