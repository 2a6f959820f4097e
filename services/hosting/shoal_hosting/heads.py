"""Bounds on the size and the slowness of request heads; looks at no head's content.

uvicorn bounds neither: a peer could feed a header for ever, or hold a connection by sending one
byte of a request and no more.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class BoundedHeads(HttpToolsProtocol):
    """An HTTP connection that is closed when a request's head is too long or too slow.

    The time for the first request's head runs from the end of the TLS handshake. Between
    requests, the server's keep-alive time is in force.
    """

    head_limit_bytes = 64 * 1024
    head_seconds = 20.0

    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > self.head_limit_bytes:
                self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head_timer is None:
            self._expect_head()

    def on_headers_complete(self) -> None:
        self._have_head()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.abort)

    def _have_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
