"""Requests over kept-alive TLS connections, with as little work of its own as possible.

An ordinary HTTP client costs more than the service that it asks; this one builds the bytes by
hand and lets httptools read the answers.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

import httptools

from shoal_kit.tls_certificates import pinned_tls
from shoal_protocol.trust.manifest import ServiceParty

_READ_BYTES: Final = 65_536


def request(service: ServiceParty, method: str, path: str, body: bytes = b"") -> bytes:
    """Return the bytes of a request."""
    host = urlsplit(service.url).netloc
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class _Answer:
    """What httptools calls back: an answer's body, and that it is complete."""

    def __init__(self) -> None:
        self.complete = False
        self.body = b""

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.complete = True


async def ask(service: ServiceParty, requests: Sequence[bytes], *, connections: int) -> list[bytes]:
    """Send every request over so many connections; return the answers' bodies.

    Raises:
        RuntimeError: an answer is no success.
    """
    url, tls = urlsplit(service.url), pinned_tls(service.certificate)
    opening = (asyncio.open_connection(url.hostname, url.port, ssl=tls) for _ in range(connections))
    lines = await asyncio.gather(*opening)
    waiting, bodies = iter(enumerate(requests)), [b""] * len(requests)
    await asyncio.gather(*(_ask(*line, waiting, bodies) for line in lines))
    for _, writer in lines:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for _, writer in lines))
    return bodies


async def _ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    waiting: Iterator[tuple[int, bytes]],
    bodies: list[bytes],
) -> None:
    for number, content in waiting:
        writer.write(content)
        answer = _Answer()
        parser = httptools.HttpResponseParser(answer)
        while not answer.complete:
            received = await reader.read(_READ_BYTES)
            if not received:
                raise RuntimeError("the service closed the connection")
            parser.feed_data(received)
        if parser.get_status_code() >= 300:
            raise RuntimeError(f"the service answered {parser.get_status_code()}")
        bodies[number] = answer.body
