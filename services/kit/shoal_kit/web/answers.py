"""Bounds the bytes of answers that peers have not read yet.

uvicorn would buffer a whole answer for as long as the peer does not read.
"""

from collections import Counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal_kit.web.problems import refusal
from shoal_protocol.wire.errors import NotReady

PIECE_BYTES: Final = 16 << 10  # a TLS record
# What a connection buffers of an answer beside the answer itself: two pieces for TLS, one more
# and 64 KiB in uvloop's transport.
BUFFERED_BYTES: Final = 128 << 10


class AnswerLimits:
    """Send large answers piece by piece, each once the connection has room for it.

    Together they hold at most `unsent_bytes`, or one larger answer alone. Equal answers are held
    once. An answer for which there is no room is refused with 503. Who takes nothing is cut by
    `serving.BoundedHeads`, and keeps nobody else from an answer for long.

    An answer of at most `PIECE_BYTES` is not counted: a connection has one at a time. The
    application sends the whole body of each answer in one message, as all of ours do.
    """

    def __init__(self, app: ASGIApp, *, unsent_bytes: int) -> None:
        self._app = app
        self._limit_bytes = unsent_bytes
        self._bodies = Counter[bytes]()  # how many equal answers are being sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head: Message = {}  # held back until it is clear that there is room

        async def paced_send(message: Message) -> None:
            nonlocal head
            content = message.get("body", b"")
            if message["type"] == "http.response.start":
                head = message
            elif len(content) <= PIECE_BYTES:
                await send(head)
                await send(message)
            elif not self._has_room(content):
                await refusal(
                    NotReady("Too many large answers wait for those who asked for them.")
                )(scope, receive, send)
            else:
                self._bodies[content] += 1
                try:
                    await send(head)
                    await _send_in_pieces(content, send)
                finally:
                    self._bodies -= Counter([content])

        await self._app(scope, receive, paced_send)

    def _has_room(self, content: bytes) -> bool:
        held = sum(map(len, self._bodies)) + BUFFERED_BYTES * self._bodies.total()
        more = BUFFERED_BYTES + (0 if content in self._bodies else len(content))
        return not held or held + more <= self._limit_bytes


async def _send_in_pieces(content: bytes, send: Send) -> None:
    view = memoryview(content)
    for begin in range(0, len(view), PIECE_BYTES):
        end = begin + PIECE_BYTES
        piece = {"type": "http.response.body", "body": view[begin:end]}
        await send(piece | {"more_body": end < len(view)})
