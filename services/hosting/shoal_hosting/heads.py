"""Bounds on all of a request but its body, in size and slowness; looks at no head's content.

uvicorn bounds none: a peer could feed a header or trailers for ever, or hold a connection by
sending one byte of a request and no more.
"""

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_LIMIT_BYTES: Final = 64 << 10
BODY_PER_FRAMING_BYTE: Final = 16
MOST_PIPELINED: Final = 16


class BoundedHeads(HttpToolsProtocol):
    """An HTTP connection that is closed when a request's head is too long or too slow.

    Head, chunk sizes, chunk extensions and trailers together may take `HEAD_LIMIT_BYTES`, and a
    byte more for each `BODY_PER_FRAMING_BYTE` of body. Trailers are dropped (RFC 9110, section
    6.5.1): uvicorn would add them to the headers. At most `MOST_PIPELINED` requests may wait
    behind one that is not answered yet.

    The time for the first request's head runs from the end of the TLS handshake. Between
    requests, the server's keep-alive time is in force.
    """

    head_seconds = 20.0

    _besides_body_bytes = 0
    _body_bytes = 0
    _body_bytes_in_data = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._body_bytes_in_data = 0
        super().data_received(data)
        self._besides_body_bytes += len(data) - self._body_bytes_in_data
        allowed = HEAD_LIMIT_BYTES + self._body_bytes // BODY_PER_FRAMING_BYTE
        if self._besides_body_bytes > allowed or len(self.pipeline) > MOST_PIPELINED:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._besides_body_bytes = self._body_bytes = 0
        if self._head_timer is None:
            self._expect_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_timer is not None:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._body_bytes_in_data += len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._have_head()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.abort)

    def _have_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
