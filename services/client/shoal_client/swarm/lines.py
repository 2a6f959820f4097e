"""A kept-alive TLS connection to a service, asked by hand: a whole client costs more than its work.

It knows HTTP/1.1 as the services speak it, with lengths and without chunks, and no meaning.
"""

import asyncio
import re
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode, urlsplit

from shoal_client.peer import ANSWER_SECONDS, LARGEST_ANSWER_BYTES, Answer, Unavailable
from shoal_client.swarm.metering import Monotonic, RequestFigures, figures_of, kind_of
from shoal_hosting.connections import pinned_tls
from shoal_protocol.manifest import ServiceParty

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_RETRY_AFTER: Final = re.compile(rb"\r\nretry-after: *(\d{1,4})\r\n", re.IGNORECASE)
_LARGEST_HEAD: Final = 1 << 16
_CLOSE_SECONDS: Final = 1.0


@dataclass
class Tally:
    """What several lines sent, and how long each answer took, by kind of request."""

    monotonic: Monotonic
    seconds: dict[str, "array[float]"] = field(default_factory=dict)
    sent_bytes: Counter[str] = field(default_factory=Counter)
    received_bytes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, RequestFigures]:
        """Return what was counted, by kind of request."""
        return {
            kind: figures_of(seconds, self.sent_bytes[kind])
            for kind, seconds in self.seconds.items()
        }


class Line:
    """One connection to one party, to its pinned certificate; opened when it is first needed."""

    def __init__(self, party: ServiceParty, tally: Tally) -> None:
        """Open nothing yet."""
        self._url = urlsplit(party.url)
        self._tls = pinned_tls(party.certificate)
        self._tally = tally
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str, **parameters: str | int) -> Answer:
        """Ask.

        Raises:
            Unavailable: no answer, or one that says to come back later.
        """
        query = f"?{urlencode(parameters)}" if parameters else ""
        return await self._request("GET", path + query, b"", "")

    async def post(self, path: str, content: bytes, media_type: str) -> Answer:
        """Send.

        Raises:
            Unavailable: as `get`.
        """
        return await self._request("POST", path, content, f"Content-Type: {media_type}\r\n")

    async def close(self) -> None:
        """Close the connection, and wait until it is: the event loop may end next."""
        if self._streams is None:
            return
        (_, writer), self._streams = self._streams, None
        writer.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await writer.wait_closed()
        except (OSError, TimeoutError):
            writer.transport.abort()  # the other side is gone, or does not say goodbye

    async def _request(self, method: str, path: str, content: bytes, fields: str) -> Answer:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._url.netloc}\r\n{fields}"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        tally, kind = self._tally, kind_of(path)
        begun = tally.monotonic()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                status, wait, body = await self._exchange(head.encode() + content)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            await self.close()
            tally.errors[f"{kind}: {type(error).__name__}"] += 1
            raise Unavailable(type(error).__name__) from error
        tally.seconds.setdefault(kind, array("f")).append(tally.monotonic() - begun)
        tally.sent_bytes[kind] += len(head) + len(content)
        tally.received_bytes[kind] += len(body)
        if status >= 500 or status == 429:
            tally.errors[f"{kind}: status {status}"] += 1
            later = Unavailable(f"status {status}")
            later.retry_after_seconds = wait
            raise later
        return Answer(status, body)

    async def _exchange(self, request: bytes) -> tuple[int, float, bytes]:
        """Send a request and return the answer's status, Retry-After in seconds, and body.

        Raises:
            OSError, EOFError: the connection broke.
            ValueError: the answer is not as the services speak.
        """
        if self._streams is None:
            self._streams = await asyncio.open_connection(
                self._url.hostname, self._url.port, ssl=self._tls, limit=_LARGEST_HEAD
            )
        reader, writer = self._streams
        writer.write(request)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if length is None or int(length[1]) > LARGEST_ANSWER_BYTES:
            raise ValueError("an answer must have a length")
        wait = _RETRY_AFTER.search(head)
        body = await reader.readexactly(int(length[1]))
        return int(head.split(b" ", 2)[1]), float(wait[1]) if wait else 0.0, body
