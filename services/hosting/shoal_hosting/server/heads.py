"""Bounds the size and time of request heads, and the time that a peer may leave answers unread.

uvicorn bounds neither: a peer could feed a header or trailers for ever, or hold a connection by
sending one byte of a request, or by reading no byte of an answer.
"""

import asyncio
import socket
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shoal_hosting.server.answers import CUT, PIECE_BYTES

HEAD_LIMIT_BYTES: Final = 64 << 10
MOST_FIELDS: Final = 100  # of a head: parsed, a short one takes many times its bytes
# What the kernel takes for a connection before its peer has room for it. By default that grows to
# megabytes, all of which a peer that reads nothing would hold.
KERNEL_UNSENT_BYTES: Final = 128 << 10
BODY_PER_FRAMING_BYTE: Final = 16
MOST_PIPELINED: Final = 16


class BoundedHeads(HttpToolsProtocol):
    """An HTTP connection that is closed when a request's head is too long or too slow.

    Head, chunk sizes, chunk extensions and trailers together may take `HEAD_LIMIT_BYTES`, and a
    byte more for each `BODY_PER_FRAMING_BYTE` of body; a head has at most `MOST_FIELDS`. Trailers
    are dropped (RFC 9110, section 6.5.1): uvicorn would add them to the headers. At most
    `MOST_PIPELINED` requests may wait behind one that is not answered yet.

    The time for the first request's head runs from the end of the TLS handshake. Between
    requests, the server's keep-alive time is in force.

    A peer has `unread_seconds` to take what the connection has buffered, some 64 KiB, of an
    answer that goes on or of answers to pipelined requests; then it is cut.
    """

    head_seconds = 20.0
    unread_seconds = 30.0

    _besides_body_bytes = 0
    _body_bytes = 0
    _body_bytes_in_data = 0
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=PIECE_BYTES)  # uvloop's own is 512 KiB over TLS
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            transport.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_UNSENT_BYTES
            )
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_head()
        self._have_taken()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._have_taken()
        self._unread_timer = self.loop.call_later(self.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._have_taken()
        super().resume_writing()

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
        self.scope["extensions"] = {CUT: self.transport.abort}  # type: ignore[dict-item]
        if self._head_timer is None:
            self._expect_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MOST_FIELDS:
            self.transport.abort()
        elif self._head_timer is not None:
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

    def _have_taken(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
