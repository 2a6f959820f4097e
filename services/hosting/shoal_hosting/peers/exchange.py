"""One HTTP exchange with a party, bounded in bytes and time: the one way to ask another service.

The client follows no redirect, decodes no body, keeps no cookie, reads no environment, trusts the
pinned certificate alone, and does not retry.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

import httpx

from shoal_hosting.peers.connections import (
    failure_in_words,
    pinned_tls,
    shows_another_certificate,
    unverified_tls,
)
from shoal_hosting.peers.lines import Lines
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.encoding import check_values
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError

LARGEST_ANSWER_BYTES: Final = 256 << 20  # a manifest with a roster of six million clients
ORDINARY_ANSWER_BYTES: Final = 16 << 20
ANSWER_SECONDS: Final = 20.0  # for an answer's head to come, and then for a small body
SLOWEST_BYTES_PER_SECOND: Final = 4096  # of an answer that takes longer than that
USUAL_BYTES_PER_SECOND: Final = 256 << 10  # least rate of large bodies: 2 Mbit/s
LONGEST_WISH_SECONDS: Final = 3600.0  # of a Retry-After
CONNECTIONS: Final = 100
EXCHANGE_SECONDS: Final = 5.0  # between two exchanges of manifests with one URL
_NOT_MODIFIED: Final = 304


class Unavailable(Exception):
    """The peer gave no answer that counts; the same request may be made again later."""

    retry_after_seconds: float = 0.0
    """The least that it asked to be left in peace for."""


class OtherCertificate(Unavailable):
    """Who answers shows another certificate than the one pinned: one of us missed a manifest."""


@dataclass(frozen=True)
class Reply:
    """A status, the fields of the head, and a body of bounded size."""

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=httpx.Headers, repr=False)

    @property
    def retry_after_seconds(self) -> float:
        """Return the seconds of the answer's Retry-After, bounded; 0 without one."""
        wish = self.headers.get("Retry-After", "")
        if not (wish.isascii() and wish.isdecimal() and len(wish) < 9):
            return 0.0
        return min(float(wish), LONGEST_WISH_SECONDS)

    def json(self) -> Any:
        """Return the JSON in the body.

        Raises:
            MalformedDocument: there is none.
        """
        return json_in(self.body)


def json_in(body: bytes) -> Any:
    """Return the JSON in an answer's body.

    Raises:
        MalformedDocument: there is none, or it has more values than a document may have.
    """
    check_values(body)
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise MalformedDocument("the answer is not JSON") from None


@dataclass(frozen=True)
class Contact:
    """When a party was asked last and when it answered, by the event loop's clock, in seconds."""

    asked_at: float
    answered_at: float | None
    failure: str | None
    """Why there was no answer that counts to the last request; None: there was one."""


class Connection:
    """Exchanges requests with the holder of a certificate at a URL, over kept-alive connections."""

    def __init__(
        self,
        url: str,
        certificate: str | None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        answer_seconds: float = ANSWER_SECONDS,
        connections: int = CONNECTIONS,
        meet_other: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Connect over `transport`, or over the network, by up to so many lines, where it is None.

        An answer's head has `answer_seconds` to come, and its body as much to begin with. Without
        a `certificate` anybody may answer: that is for what `manifest_exchange` does. `meet_other`
        is called before `OtherCertificate` is raised.

        Raises:
            ValueError: `certificate` is not one certificate in PEM form.
        """
        self._url, self._certificate = url.rstrip("/"), certificate
        self._answer_seconds = answer_seconds
        self._meet_other = meet_other
        tls = unverified_tls() if certificate is None else pinned_tls(certificate)
        self._transport = transport or Lines(tls, connections=connections)
        self.contact: Contact | None = None
        """How the last request went that is over."""

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the lines."""
        await self._transport.aclose()

    async def ask(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        media_type: str = "application/json",
        limit_bytes: int = ORDINARY_ANSWER_BYTES,
        wait_seconds: float = 0.0,
        headers: Mapping[str, str] | None = None,
        parameters: Mapping[str, str | int] | None = None,
    ) -> Reply:
        """Send one request and return the reply, whatever its status, if it is no redirect.

        `content` is of `media_type`. The answer's head may take longer by `wait_seconds`, which it
        was asked to wait, and by what sending `content` takes; its body in proportion to what came
        of it, up to what `limit_bytes` would take.

        Raises:
            Unavailable: no connection, a broken one, a slow one, or an answer that is too long,
                encoded, or leads elsewhere. The message is in words of our own.
            OtherCertificate: nobody who answers there has the certificate.
        """
        patience = self._answer_seconds + wait_seconds
        fields = httpx.Headers({"Accept-Encoding": "identity"})
        if content is not None:
            fields["Content-Type"] = media_type
        fields.update(headers)
        request = httpx.Request(
            method,
            self._url + path,
            params=parameters or None,
            headers=fields,
            content=content,
            extensions={"timeout": {"read": patience}},  # for what stands in for the network
        )
        sending = len(content or b"") / USUAL_BYTES_PER_SECOND
        with self._noted():
            return await self._exchange(request, patience + sending, limit_bytes)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        now = asyncio.get_running_loop().time
        asked_at = now()
        before = None if self.contact is None else self.contact.answered_at
        try:
            yield
        except Unavailable as error:
            self.contact = Contact(asked_at, before, str(error))
            raise
        self.contact = Contact(asked_at, now(), None)

    async def _exchange(self, request: httpx.Request, seconds: float, limit_bytes: int) -> Reply:
        try:
            async with asyncio.timeout(seconds) as deadline:
                response = await self._transport.handle_async_request(request)
                try:
                    body = await _bounded(response, deadline, self._answer_seconds, limit_bytes)
                finally:
                    await response.aclose()
        except TimeoutError as error:
            raise Unavailable("no answer in time") from error
        except (httpx.TransportError, OSError) as error:
            said = failure_in_words(error.__cause__, self._certificate)
            if shows_another_certificate(error.__cause__):
                if self._meet_other is not None:
                    await self._meet_other()
                raise OtherCertificate(said) from error
            raise Unavailable(said or str(error) or type(error).__name__) from error
        return Reply(response.status_code, body, response.headers)


async def _bounded(
    response: httpx.Response, deadline: asyncio.Timeout, seconds: float, limit_bytes: int
) -> bytes:
    """Read an answer within bounds: a slow one would delay everything that waits for it."""
    if response.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise Unavailable("the answer is encoded, which was not asked for")
    if 300 <= response.status_code < 400 and response.status_code != _NOT_MODIFIED:
        raise Unavailable("the answer leads elsewhere")  # no service redirects
    declared = response.headers.get("Content-Length", "")
    if declared.isascii() and declared.isdecimal() and int(declared[:20]) > limit_bytes:
        raise Unavailable("the answer is too long")
    body = bytearray()
    latest = asyncio.get_running_loop().time() + seconds
    longest = limit_bytes / USUAL_BYTES_PER_SECOND
    deadline.reschedule(latest)
    async for part in cast("httpx.AsyncByteStream", response.stream):  # as it is on the wire
        body += part
        if len(body) > limit_bytes:
            raise Unavailable("the answer is too long")
        deadline.reschedule(latest + min(len(body) / SLOWEST_BYTES_PER_SECOND, longest))
    return bytes(body)


class Connections:
    """Connections to parties, opened when they are first needed, each to its own certificate.

    A party that moved, or renewed its certificate, is another one here; its old lines end idle.
    """

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport | None,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        exchange: Callable[[Connection], Awaitable[object]] | None = None,
    ) -> None:
        """Connect as a `Connection` does.

        Where a party shows another certificate than expected, `exchange` brings both sides to the
        same version of the manifest over a connection to whoever answers, every now and then.
        """
        self._transport, self._answer_seconds = transport, answer_seconds
        self._known: dict[tuple[str, str], Connection] = {}
        self._exchange = exchange
        self._exchanged_at: dict[str, float] = {}  # by URL

    def to(self, party: ServiceParty) -> Connection:
        """Return the connection to a party."""
        key = (party.url, party.certificate)
        if key not in self._known:
            self._known[key] = Connection(
                party.url,
                party.certificate,
                transport=self._transport,
                answer_seconds=self._answer_seconds,
                meet_other=partial(self._meet_other, party.url),
            )
        return self._known[key]

    async def _meet_other(self, url: str) -> None:
        now = asyncio.get_running_loop().time()
        last = self._exchanged_at.get(url)
        if self._exchange is None or (last is not None and now < last + EXCHANGE_SECONDS):
            return
        self._exchanged_at[url] = now
        async with Connection(url, None, answer_seconds=self._answer_seconds) as anybody:
            with suppress(Unavailable, ProtocolError, OSError):  # it is tried again
                await self._exchange(anybody)

    async def close(self) -> None:
        """Close all of them; they are opened again when needed."""
        while self._known:
            _, connection = self._known.popitem()
            await connection.close()
