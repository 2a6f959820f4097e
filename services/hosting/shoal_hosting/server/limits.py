"""Bounds the size, encoding, total and slowness of request bodies."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal_hosting.server.problems import http_problem
from shoal_protocol.wire.errors import NotReady

UNREAD_BYTES: Final = 64 << 10  # as much of a refused body is rather read than cut off
# The connection is closed, for the rest of the body must not be read as the next request.
CLOSE: Final = {"Connection": "close"}
LATER: Final = CLOSE | {"Retry-After": str(NotReady.retry_after_seconds)}


class BodyLimits:
    """Refuse a body of more than `limit_bytes` with 413, one that comes too slowly with 408.

    A body with a content encoding is refused with 415, so that bytes counted are bytes read.

    `limit_bytes_by_ending` sets other bounds for paths with certain endings. Bodies sent to paths
    with endings in `streamed` are not kept in memory, and so not counted there. A body may take
    `grace_seconds`, and a second more for each `slowest_bytes_per_second` of it that arrived, so
    that a large body over a slow line passes and a silent peer holds nothing for long.

    All requests in progress together hold at most `in_memory_bytes` of bodies. A body that grows
    larger than the room left is refused with 503. So the largest bodies give way first, and some
    room always stays for small ones (the dynamic threshold of Choudhury and Hahne, 1998).

    A connection is closed with a refusal that was sent before the end of a large body.

    FastAPI's own `max_body_size` answers in plain text and sets no time.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limit_bytes: int,
        limit_bytes_by_ending: Mapping[str, int],
        streamed: Collection[str],
        grace_seconds: float,
        slowest_bytes_per_second: float,
        in_memory_bytes: int,
    ) -> None:
        self._app = app
        self._limit_bytes = limit_bytes
        self._limit_bytes_by_ending = dict(limit_bytes_by_ending)
        self._streamed = tuple(streamed)
        self._grace_seconds = grace_seconds
        self._slowest_bytes_per_second = slowest_bytes_per_second
        self._left_bytes = in_memory_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _is_encoded(scope):
            await http_problem(415, CLOSE | {"Accept-Encoding": "identity"})(scope, receive, send)
            return
        limit = self._limit_for(scope["path"])
        declared, streamed = _declared_length(scope), scope["path"].endswith(self._streamed)
        if declared > limit:
            await http_problem(413, CLOSE)(scope, receive, send)
            return

        loop = asyncio.get_running_loop()
        received = held = 0
        began: float | None = None
        complete = False

        async def bounded_receive() -> Message:
            nonlocal received, held, began, complete
            if complete:  # what follows is a disconnect, and may be awaited for as long as it takes
                return await receive()
            began = loop.time() if began is None else began
            allowed = self._grace_seconds + received / self._slowest_bytes_per_second
            try:
                async with asyncio.timeout_at(began + allowed):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, headers=CLOSE) from None
            if message["type"] == "http.request":
                size = len(message.get("body", b""))
                received += size
                if not streamed:
                    held += size
                    self._left_bytes -= size  # given back when the request was answered
                complete = not message.get("more_body", False)
                if received > limit:
                    raise HTTPException(413, headers=CLOSE)
                if held and size and held > self._left_bytes:
                    raise HTTPException(503, headers=LATER)
            return message

        async def closing_send(message: Message) -> None:
            refuses = message["type"] == "http.response.start" and message["status"] >= 400
            if refuses and not complete and declared - received > UNREAD_BYTES:
                others = [each for each in message["headers"] if each[0] != b"connection"]
                message["headers"] = [*others, (b"connection", b"close")]
            await send(message)

        try:
            await self._app(scope, bounded_receive, closing_send)
        finally:
            self._left_bytes += held

    def _limit_for(self, path: str) -> int:
        for ending, limit in self._limit_bytes_by_ending.items():
            if path.endswith(ending):
                return limit
        return self._limit_bytes


def _is_encoded(scope: Scope) -> bool:
    return any(
        name == b"content-encoding" and value.strip().lower() != b"identity"
        for name, value in scope["headers"]
    )


def _declared_length(scope: Scope) -> int:
    """Return the Content-Length, or 0 where there is none to go by: then the bytes are counted."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value[:20])
    return 0
