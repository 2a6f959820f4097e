"""Bodies are bounded in size and in time."""

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry

from shoal_kit.web.application import create_application

LIMIT, LARGER_LIMIT = 10, 20


async def ready() -> None:
    """Always ready."""


def make_app(
    grace_seconds: float = 30.0, slowest: float = 1000.0, in_memory: int = 1000
) -> FastAPI:
    app = create_application(
        "test",
        ready=ready,
        registry=CollectorRegistry(),
        body_limit_bytes=LIMIT,
        body_limit_bytes_by_ending={"/shares": LARGER_LIMIT},
        body_grace_seconds=grace_seconds,
        slowest_body_bytes_per_second=slowest,
        bodies_in_memory_bytes=in_memory,
    )

    @app.post("/v1/raw")
    @app.post("/v1/rounds/{number}/shares")
    async def raw(request: Request) -> int:
        return len(await request.body())

    @app.post("/v1/parsed")
    async def parsed(body: list[int]) -> int:
        return len(body)

    return app


async def post(app: FastAPI, path: str, content: Any, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://test") as client:
        return await client.post(path, content=content, headers=headers)


def assert_refused(response: httpx.Response, code: str, status: int) -> None:
    assert (response.status_code, response.json()["type"]) == (status, f"urn:shoal:problem:{code}")
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["connection"] == "close"


@pytest.mark.parametrize(("path", "limit"), [("/v1/raw", 10), ("/v1/rounds/7/shares", 20)])
async def test_a_declared_length_over_the_limit_is_refused_before_anything_is_read(
    path: str, limit: int
) -> None:
    app = make_app()
    assert (await post(app, path, b"x" * limit)).json() == limit
    # The body itself would pass, so only the declaration can be what is refused.
    response = await post(app, path, b"x", **{"content-length": str(limit + 1)})
    assert_refused(response, "body-too-large", 413)
    response = await post(app, path, b"x", **{"content-length": "9" * 5000})
    assert_refused(response, "body-too-large", 413)


def silent_after(chunks: list[bytes]) -> Callable[[], Any]:
    pending = list(chunks)

    async def receive() -> dict[str, Any]:
        if pending:
            return {"type": "http.request", "body": pending.pop(0), "more_body": True}
        await asyncio.Event().wait()
        raise AssertionError("nothing sets the event")

    return receive


async def statuses(app: FastAPI, receive: Callable[[], Any], path: str) -> list[int]:
    sent: list[int] = []

    async def take(message: Any) -> None:
        if message["type"] == "http.response.start":
            sent.append(message["status"])

    scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
    json_body = [(b"content-type", b"application/json")]
    await app(scope | {"headers": json_body}, receive, take)
    return sent


@pytest.mark.parametrize("path", ["/v1/raw", "/v1/parsed"])
@pytest.mark.parametrize("chunks", [[], [b"[1,"]])
async def test_a_peer_that_falls_silent_is_let_go(path: str, chunks: list[bytes]) -> None:
    app = make_app(grace_seconds=0.01)
    assert await statuses(app, silent_after(chunks), path) == [408]


class JumpingClock(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    now = 0.0

    def __init__(self) -> None:
        clock = self

        class Selector(selectors.DefaultSelector):
            def select(self, timeout: float | None = None) -> Any:
                clock.now += timeout or 0.0
                return super().select(0)

        super().__init__(Selector())

    def time(self) -> float:
        return self.now


@pytest.mark.parametrize(("pause_seconds", "status"), [(3.2, 200), (3.3, 408)])
def test_a_slow_body_earns_time_by_the_bytes_that_arrived(
    pause_seconds: float, status: int
) -> None:
    pending = [b"xxxxx", b"xxxxx"]

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(pause_seconds)
        return {"type": "http.request", "body": pending.pop(0), "more_body": bool(pending)}

    # 4 seconds at first, 2.5 more for five bytes at 2 bytes a second: 6.5 in all.
    app = make_app(grace_seconds=4, slowest=2)
    with asyncio.Runner(loop_factory=JumpingClock) as runner:
        assert runner.run(statuses(app, receive, "/v1/raw")) == [status]


async def test_all_bodies_together_are_bounded_and_the_largest_give_way_first() -> None:
    app = make_app(in_memory=20)
    answered, sent = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"xxxxxx"
        sent.set()
        await answered.wait()
        yield b"x"

    async def hold() -> list[int]:
        chunks = aiter(slowly())

        async def receive() -> dict[str, Any]:
            body = await anext(chunks, b"")
            return {"type": "http.request", "body": body, "more_body": bool(body)}

        return await statuses(app, receive, "/v1/raw")

    assert (await post(app, "/v1/raw", b"x" * 10)).json() == 10
    holding = asyncio.create_task(hold())
    await sent.wait()
    assert (await post(app, "/v1/raw", b"x" * 7)).json() == 7  # 20 - 6 - 7 are left
    for path in ("/v1/raw", "/v1/parsed"):
        response = await post(app, path, b"x" * 8, **{"content-type": "application/json"})
        assert_refused(response, "not-ready", 503)
        assert response.headers["retry-after"] == "2"
    answered.set()
    assert await holding == [200]
    assert (await post(app, "/v1/raw", b"x" * 10)).json() == 10


@pytest.mark.parametrize("path", ["/v1/raw", "/v1/parsed", "/v1/rounds/7/shares", "/v1/elsewhere"])
@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "br", "x-own", "identity, gzip"])
async def test_an_encoded_body_is_refused_wherever_it_is_sent(path: str, encoding: str) -> None:
    response = await post(make_app(), path, b"[1]", **{"Content-Encoding": encoding})
    assert_refused(response, "encoded-body", 415)
    assert response.headers["Accept-Encoding"] == "identity"
