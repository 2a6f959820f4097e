"""Counts and times requests on their way to real services."""

import asyncio
import re
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import httpx
import numpy as np

from shoal_hosting.peers.exchange import transport_to
from shoal_hosting.peers.peer import LATER
from shoal_hosting.tls_certificates import pinned_tls
from shoal_protocol.trust.manifest import Consortium

Monotonic = Callable[[], float]
"""Seconds from any origin, such as `time.monotonic`."""

UPLOAD: Final = "upload"
BULK_UPLOAD: Final = "bulk upload"
JOIN: Final = "join"
RECEIPT_QUERY: Final = "receipt query"
DRAW: Final = "draw"
SUBMISSION: Final = "submission"
OTHER: Final = "other"
_KINDS: Final = (
    (re.compile(r"/v1/rounds/[^/]+/shares"), UPLOAD),
    (re.compile(r"/v1/rounds/[^/]+/shares/bulk"), BULK_UPLOAD),
    (re.compile(r"/v1/rounds/[^/]+/shares/stored"), RECEIPT_QUERY),
    (re.compile(r"/v1/jobs/[^/]+/joins"), JOIN),
    (re.compile(r"/v1/crowds/[^/]+/draws"), DRAW),
    (re.compile(r"/v1/crowds/[^/]+/submissions"), SUBMISSION),
)


@dataclass(frozen=True)
class RequestFigures:
    """Requests of one kind: how many, how long until each was answered, and what was sent."""

    count: int
    p50_milliseconds: float
    p95_milliseconds: float
    p99_milliseconds: float
    sent_bytes: int


def figures_of(seconds: "array[float]", sent_bytes: int) -> RequestFigures:
    """Return the figures of requests that took these times and bytes together."""
    p50, p95, p99 = np.percentile(seconds, (50, 95, 99)) * 1e3
    return RequestFigures(len(seconds), float(p50), float(p95), float(p99), sent_bytes)


def kind_of(path: str) -> str:
    """Return what a request to `path` is for."""
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(path)), OTHER)


@dataclass
class _Requests:
    seconds: "array[float]" = field(default_factory=lambda: array("f"))
    sent_bytes: int = 0

    def figures(self) -> RequestFigures:
        return figures_of(self.seconds, self.sent_bytes)


class Meter(httpx.AsyncBaseTransport):
    """Connections to the services of a manifest, each to its pinned certificate, and a count."""

    def __init__(self, consortium: Consortium, monotonic: Monotonic, *, connections: int) -> None:
        manifest = consortium.manifest
        self._monotonic = monotonic
        self._transports = {
            _origin(httpx.URL(party.url)): transport_to(
                httpx.URL(party.url), pinned_tls(party.certificate), connections
            )
            for party in (*manifest.compute_nodes, manifest.aggregator, manifest.trainer)
        }
        self._requests: dict[str, _Requests] = {}
        self.errors: Counter[str] = Counter()
        """Failed requests, by kind of request and by exception or status."""
        self.received_bytes: Counter[str] = Counter()
        """Of the answers' bodies, by kind of request."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and count it; an httpx error passes through."""
        transport = self._transports.get(_origin(request.url))
        if transport is None:
            raise httpx.ConnectError("no service of the manifest has this address")
        kind = kind_of(request.url.path)
        begun = self._monotonic()
        try:
            response = await transport.handle_async_request(request)
        except httpx.HTTPError as error:
            self.errors[f"{kind}: {type(error).__name__}"] += 1
            raise
        except asyncio.CancelledError:
            self.errors[f"{kind}: given up"] += 1
            raise
        requests = self._requests.setdefault(kind, _Requests())
        requests.seconds.append(self._monotonic() - begun)
        requests.sent_bytes += sent_bytes(request)
        self.received_bytes[kind] += int(response.headers.get("Content-Length", 0))
        if response.status_code >= 500 or response.status_code in LATER:
            self.errors[f"{kind}: status {response.status_code}"] += 1
        return response

    def figures(self) -> dict[str, RequestFigures]:
        """Return what was counted, by kind of request."""
        return {kind: requests.figures() for kind, requests in self._requests.items()}

    async def aclose(self) -> None:
        """Leave the connections open: a client that is closed shares them with others."""

    async def close(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            await transport.aclose()


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def sent_bytes(request: httpx.Request) -> int:
    """Return the bytes of a request's head and body, without TLS."""
    line = len(request.method) + len(request.url.raw_path) + len("  HTTP/1.1\r\n\r\n")
    fields = sum(len(name) + len(value) + 4 for name, value in request.headers.raw)
    return line + fields + int(request.headers.get("Content-Length", 0))
