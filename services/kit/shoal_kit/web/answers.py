"""Bounds the bytes of answers that peers have not read yet.

uvicorn would buffer a whole answer for as long as the peer does not read.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal_kit.web.problems import refusal
from shoal_protocol.wire.errors import NotReady

PIECE_BYTES: Final = 16 << 10  # a TLS record
# What a connection buffers of an answer beside the answer itself: two pieces for TLS, one more
# and 64 KiB in uvloop's transport.
BUFFERED_BYTES: Final = 128 << 10
STALLED_SECONDS: Final = 5.0
CUT: Final = "shoal.cut"
"""ASGI extension: the function that ends the request's connection at once."""


@dataclass(eq=False)
class _Body:
    """The bytes of one or more equal answers, and the number of answers being sent."""

    content: bytes
    answers: int = 0


@dataclass(eq=False)
class _Answer:
    """An answer that is being sent."""

    body: _Body
    cut: Callable[[], None] | None
    waits_since: float


class AnswerLimits:
    """Send large answers piece by piece, each once the connection has room for it.

    Together they hold at most `unsent_bytes`, or one larger answer alone. Equal answers are held
    once. An answer for which there is no room replaces the one whose reader has read nothing for
    longest, if that is `STALLED_SECONDS` or more, and is refused with 503 otherwise. So stalled
    readers keep nobody else from an answer for long.

    An answer of at most `PIECE_BYTES` is not counted: a connection has one at a time. The
    application sends the whole body of each answer in one message, as all of ours do.
    """

    def __init__(self, app: ASGIApp, *, unsent_bytes: int) -> None:
        self._app = app
        self._limit_bytes = unsent_bytes
        self._held_bytes = 0
        self._bodies: dict[bytes, _Body] = {}
        self._answers: dict[_Answer, None] = {}  # in the order in which they began

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head: Message = {}  # held back until it is clear that there is room
        cut = scope.get("extensions", {}).get(CUT)

        async def paced_send(message: Message) -> None:
            nonlocal head
            content = message.get("body", b"")
            if message["type"] == "http.response.start":
                head = message
            elif len(content) <= PIECE_BYTES:
                await send(head)
                await send(message)
            elif (answer := self._admit(content, cut)) is None:
                await refusal(
                    NotReady("Too many large answers wait for those who asked for them.")
                )(scope, receive, send)
            else:
                try:
                    await send(head)
                    await _send_in_pieces(answer, send)
                finally:
                    self._release(answer)

        await self._app(scope, receive, paced_send)

    def _admit(self, content: bytes, cut: Callable[[], None] | None) -> _Answer | None:
        while self._held_bytes and self._held_bytes + self._cost(content) > self._limit_bytes:
            if not self._cut_longest_stalled():
                return None
        self._held_bytes += self._cost(content)
        body = self._bodies.setdefault(content, _Body(content))
        body.answers += 1
        answer = _Answer(body, cut, asyncio.get_running_loop().time())
        self._answers[answer] = None
        return answer

    def _cost(self, content: bytes) -> int:
        return BUFFERED_BYTES + (0 if content in self._bodies else len(content))

    def _release(self, answer: _Answer) -> None:
        if answer not in self._answers:  # cut before
            return
        del self._answers[answer]
        answer.body.answers -= 1
        if not answer.body.answers:
            del self._bodies[answer.body.content]
        self._held_bytes -= self._cost(answer.body.content)

    def _cut_longest_stalled(self) -> bool:
        latest = asyncio.get_running_loop().time() - STALLED_SECONDS
        stalled = [each for each in self._answers if each.cut and each.waits_since <= latest]
        if not stalled:
            return False
        longest = min(stalled, key=lambda each: each.waits_since)
        self._release(longest)
        if longest.cut is not None:
            longest.cut()
        return True


async def _send_in_pieces(answer: _Answer, send: Send) -> None:
    loop, view = asyncio.get_running_loop(), memoryview(answer.body.content)
    for begin in range(0, len(view), PIECE_BYTES):
        end = begin + PIECE_BYTES
        answer.waits_since = loop.time()
        await send(
            {
                "type": "http.response.body",
                "body": view[begin:end],
                "more_body": end < len(view),
            }
        )
