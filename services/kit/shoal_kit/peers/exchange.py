"""One HTTP exchange with a party, bounded in bytes and time: the one way to ask another service.

httpx's transport trusts the pinned certificate alone, follows no redirect, decodes no body, keeps
no cookie, reads no environment and does not retry. Its own timeouts are for each read, so one
deadline is around all of it.
"""

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, cast

import httpx

from shoal_kit.clock import system_clock
from shoal_kit.outcome import code_in, read_json
from shoal_kit.settings import PROXY, proxy_in
from shoal_kit.tls_certificates import pinned_tls, unverified_tls, validity
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
LARGEST_ANSWER_BYTES: Final = 256 << 20  # a manifest with a roster of six million clients
ORDINARY_ANSWER_BYTES: Final = 16 << 20
ANSWER_SECONDS: Final = 20.0  # for an answer's head to come, and then for a small body
SLOWEST_BYTES_PER_SECOND: Final = 4096  # of an answer that takes longer than that
USUAL_BYTES_PER_SECOND: Final = 256 << 10  # least rate of large bodies: 2 Mbit/s
LONGEST_WISH_SECONDS: Final = 3600.0  # of a Retry-After
LONGEST_DETAIL: Final = 4000  # characters of why a peer refuses
CONNECTIONS: Final = 100
CONNECT_SECONDS: Final = 10.0  # for TCP, and as much for TLS
EXCHANGE_SECONDS: Final = 5.0  # between two exchanges of manifests with one URL
_IDLE_SECONDS: Final = 60.0  # less than the server's: a request never meets a closing connection
# Each part of a body costs work, even a small one: the parts that may come, and one more for each
# so many bytes. Over a slow network a part may be a single small segment.
_PARTS: Final = 1024
_BYTES_PER_PART: Final = 256
OWN_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
# verify codes of OpenSSL: not yet valid and expired, and of another name or address
_NOT_VALID_NOW, _OF_ANOTHER_HOST = frozenset({9, 10}), frozenset({62, 64})
_OTHER_CERTIFICATE: Final = (
    "it shows another certificate than the one listed for it: it was renewed and the newest "
    "manifest is missing on one side, or something in between inspects TLS, which must let this "
    "host pass"
)
_NO_TLS: Final = (
    "what listens there does not speak TLS as a party does, or ends the connection: see whether "
    "the port is the party's, and whether a proxy or firewall is in between"
)
_NO_CONNECTION: Final[Mapping[type[BaseException], str]] = {
    TimeoutError: "no connection in time: see that it runs and that no firewall drops what is sent",
    ssl.SSLError: _NO_TLS,
    ConnectionResetError: _NO_TLS,
    socket.gaierror: "its host name has no address here: see that it is right and DNS knows it",
    ConnectionRefusedError: "it refuses connections: nobody listens on its port; see that it runs",
}
"""Why there is no connection, and what to do about it, by the system's or TLS's error."""

# httpcore imports sniffio several times a request, whether or not it is installed. Python would
# search all paths for it each time, which takes longer than the rest of a small request.
if find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment]


class Unavailable(Exception):
    """The peer gave no answer that counts; the same request may be made again later."""

    retry_after_seconds: float = 0.0
    """The least that it asked to be left in peace for."""


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

    @property
    def is_refusal(self) -> bool:
        """Tell whether the peer refused: the same request would be refused again."""
        return self.status >= 400

    @property
    def code(self) -> str:
        """Return the problem's code; `http-<status>` if the peer named none."""
        return code_in(self.body, self.status)

    @property
    def reason(self) -> str:
        """Return a refusal's code, and its detail if it has one, for a person to read."""
        try:
            detail = self.json()["detail"]
        except (MalformedDocument, KeyError, TypeError):
            return self.code
        if not isinstance(detail, str):
            return self.code
        return f"{self.code}: {''.join(filter(str.isprintable, detail[:LONGEST_DETAIL]))}"

    def json(self) -> Any:
        """Return the JSON in the body.

        Raises:
            MalformedDocument: there is none, or it has more values than a document may have.
        """
        return read_json(self.body)


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
        """Connect over `transport`, or where it is None by up to `connections` TLS connections.

        An answer's head has `answer_seconds` to come, and its body as much to begin with. Without
        a `certificate` anybody may answer: that is for what `manifest_exchange` does. `meet_other`
        is called where who answers shows another certificate: one of us missed a manifest.

        Raises:
            ValueError: `certificate` is not one certificate in PEM form.
        """
        self._url, self._certificate = url.rstrip("/"), certificate
        self._answer_seconds, self._connections = answer_seconds, connections
        self._meet_other = meet_other
        self._tls = unverified_tls() if certificate is None else pinned_tls(certificate)
        self._transport, self._is_ours = transport, transport is None
        self._under_way = 0
        self.answered_at: float | None = None
        """When it answered last, by the event loop's clock, in seconds; None: not yet."""
        self.failure: str | None = None
        """Why there was no answer that counts to the last request; None: there was one, or none."""

    async def __aenter__(self) -> "Connection":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; they are opened again when needed."""
        if self._transport is not None:
            await self._transport.aclose()
        if self._is_ours:
            self._transport = None

    async def ask(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        media_type: str = JSON,
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
        """
        patience = self._answer_seconds + wait_seconds
        fields = httpx.Headers({"Accept-Encoding": "identity"})
        if content is not None:
            fields["Content-Type"] = media_type
        fields.update(headers)
        # TCP and TLS get a third of the time each, so that they end before the deadline: httpcore
        # leaves a socket open if it is interrupted while it connects.
        connecting = min(CONNECT_SECONDS, patience / 3)
        url = httpx.URL(self._url + path)
        if parameters:
            url = url.copy_merge_params(parameters)
        request = httpx.Request(
            method,
            url,
            headers=fields,
            content=content,
            extensions={"timeout": {"connect": connecting, "read": patience}},
        )
        sending = len(content or b"") / USUAL_BYTES_PER_SECOND
        self._under_way += 1
        try:
            reply = await self._exchange(request, patience + sending, limit_bytes)
        except Unavailable as error:
            self.failure = str(error)
            # httpcore keeps a place of its pool for a tunnel in which TLS failed, for ever.
            if self._is_ours and self._under_way == 1:
                await self.close()
            raise
        finally:
            self._under_way -= 1
        self.answered_at, self.failure = asyncio.get_running_loop().time(), None
        return reply

    async def _exchange(self, request: httpx.Request, seconds: float, limit_bytes: int) -> Reply:
        if request.url.scheme != "https":
            raise Unavailable("its URL does not begin with https://")
        if self._transport is None:
            self._transport = transport_to(request.url, self._tls, self._connections)
        try:
            async with asyncio.timeout(seconds) as deadline:
                response = await self._transport.handle_async_request(request)
                try:
                    body = await _bounded(response, deadline, self._answer_seconds, limit_bytes)
                finally:
                    await response.aclose()
        except (TimeoutError, httpx.ReadTimeout):
            raise Unavailable("no answer in time") from None
        except (httpx.TransportError, OSError) as error:
            reason = self._reason(error, request.url)
            if reason == _OTHER_CERTIFICATE and self._meet_other is not None:
                await self._meet_other()
            raise Unavailable(reason) from None
        return Reply(response.status_code, body, response.headers)

    def _reason(self, error: Exception, url: httpx.URL) -> str:
        """Say why there is no answer, and what to do about it."""
        if isinstance(error, httpx.ProxyError):  # whose message begins with the proxy's status
            return f"the proxy that {PROXY} names refuses: {str(error)[:3]}"
        if isinstance(error, httpx.RemoteProtocolError):
            return "its answer breaks off, or is not HTTP as a service speaks it"
        if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return "the connection ended before the answer did"
        cause = _first_cause(error)
        if not isinstance(cause, ssl.SSLCertVerificationError):
            return _no_connection(cause, is_proxied=_proxy_to(url) is not None)
        code = getattr(cause, "verify_code", None)  # missing where the pinned one is compared
        if code in _OF_ANOTHER_HOST:
            return (
                "its certificate is for another host name than its URL has: its operator makes one "
                "for this host by `shoal party rotate --tls`, or corrects the URL by `shoal "
                "consortium change`"
            )
        if code in _NOT_VALID_NOW:
            begin, end = validity(self._certificate or "")
            return (
                f"its certificate is valid from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} "
                f"UTC, and this machine's clock says {system_clock():%Y-%m-%d %H:%M} UTC: set the "
                "clock right, or its operator renews the certificate by `shoal party rotate --tls`"
            )
        return _OTHER_CERTIFICATE


def transport_to(url: httpx.URL, tls: ssl.SSLContext, connections: int) -> httpx.AsyncBaseTransport:
    """Return httpx's transport to one party, through the proxy that `SHOAL_HTTPS_PROXY` names.

    Raises:
        Unavailable: the proxy cannot be used.
    """
    try:
        proxy = _proxy_to(url)
        return httpx.AsyncHTTPTransport(
            verify=tls,
            trust_env=False,
            proxy=None if proxy is None else httpx.Proxy(proxy),
            limits=httpx.Limits(
                max_connections=connections,
                max_keepalive_connections=connections,
                keepalive_expiry=_IDLE_SECONDS,
            ),
        )
    except ValueError as error:
        raise Unavailable(str(error)) from None
    except httpx.InvalidURL:
        raise Unavailable(f"the proxy that {PROXY} names has no valid host name") from None


def _proxy_to(url: httpx.URL) -> str | None:
    return None if url.host in OWN_MACHINE else proxy_in(os.environ)


async def _bounded(
    response: httpx.Response, deadline: asyncio.Timeout, seconds: float, limit_bytes: int
) -> bytes:
    """Read an answer within bounds: a slow one would delay everything that waits for it."""
    head, status = response.headers, response.status_code
    if head.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise Unavailable("the answer is encoded, which was not asked for")
    if status < 200 or 300 <= status < 400:
        raise Unavailable("the answer leads elsewhere")  # no service redirects
    declared = head.get("Content-Length", "")
    if declared.isascii() and declared.isdecimal() and int(declared[:20]) > limit_bytes:
        raise Unavailable("the answer is too long")
    body = bytearray()
    parts = 0
    latest = asyncio.get_running_loop().time() + seconds
    longest = limit_bytes / USUAL_BYTES_PER_SECOND
    deadline.reschedule(latest)
    async for part in cast("httpx.AsyncByteStream", response.stream):  # as it is on the wire
        body += part
        parts += 1
        if len(body) > limit_bytes:
            raise Unavailable("the answer is too long")
        if parts > _PARTS + len(body) // _BYTES_PER_PART:
            raise Unavailable("the answer comes in too many parts")
        deadline.reschedule(latest + min(len(body) / SLOWEST_BYTES_PER_SECOND, longest))
    return bytes(body)


def _first_cause(error: BaseException) -> BaseException:
    """Return the system's or TLS's error behind httpx's; of several attempts, the first one's."""
    while True:
        if isinstance(error, BaseExceptionGroup):
            before: BaseException | None = error.exceptions[0]
        else:  # httpcore raises some "from None"
            before = error.__cause__ or (None if isinstance(error, OSError) else error.__context__)
        if before is None:
            return error
        error = before


def _no_connection(cause: BaseException, *, is_proxied: bool) -> str:
    """Say why there is no connection, and what to do about it."""
    reason = next((said for kind, said in _NO_CONNECTION.items() if isinstance(cause, kind)), None)
    if not isinstance(cause, OSError):
        return reason or _NO_TLS
    if is_proxied and reason != _NO_TLS and not isinstance(cause, TimeoutError):
        # TLS is all that is between this process and the party then
        return f"the proxy that {PROXY} names is not reached: {cause.strerror or 'no address'}"
    return reason or f"no connection: {cause.strerror}"


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
        self._known: dict[tuple[str, str | None], Connection] = {}
        self._exchange = exchange
        self._exchanged_at: dict[str, float] = {}  # by URL

    def to(self, party: ServiceParty, *, certified: bool = True) -> Connection:
        """Return the connection to a party; unless `certified`, anybody may answer in its place."""
        key = (party.url, party.certificate if certified else None)
        if key not in self._known:
            self._known[key] = Connection(
                *key,
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
