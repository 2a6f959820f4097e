"""Counts and times requests on their way to real services."""

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import httpx
import numpy as np

from shoal_kit.peers.exchange import transport_to
from shoal_kit.peers.peer import LATER
from shoal_kit.tls_certificates import pinned_tls
from shoal_protocol.trust.manifest import Consortium

Monotonic = Callable[[], float]
"""Seconds from any origin, such as `time.monotonic`."""

_KINDS: Final = (
    (re.compile(r"/v1/rounds/[^/]+/shares"), "upload"),
    (re.compile(r"/v1/rounds/[^/]+/shares/bulk"), "bulk upload"),
    (re.compile(r"/v1/rounds/[^/]+/shares/stored"), "receipt query"),
    (re.compile(r"/v1/jobs/[^/]+/memberships"), "membership"),
    (re.compile(r"/v1/crowds/[^/]+/draws"), "draw"),
    (re.compile(r"/v1/crowds/[^/]+/submissions"), "submission"),
    (re.compile(r".*"), "other"),
)


@dataclass(frozen=True)
class RequestFigures:
    """Requests of one kind: how many, and how long until each was answered."""

    count: int
    p50_milliseconds: float
    p95_milliseconds: float
    p99_milliseconds: float


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
        self._seconds = defaultdict[str, list[float]](list)
        self.errors: Counter[str] = Counter()
        """Failed requests, by kind of request and by exception or status."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and count it; an httpx error passes through."""
        transport = self._transports.get(_origin(request.url))
        if transport is None:
            raise httpx.ConnectError("no service of the manifest has this address")
        kind = next(each for pattern, each in _KINDS if pattern.fullmatch(request.url.path))
        begun = self._monotonic()
        try:
            response = await transport.handle_async_request(request)
        except (httpx.HTTPError, asyncio.CancelledError) as error:
            self.errors[f"{kind}: {type(error).__name__}"] += 1
            raise
        self._seconds[kind].append(self._monotonic() - begun)
        if response.status_code >= 500 or response.status_code in LATER:
            self.errors[f"{kind}: status {response.status_code}"] += 1
        return response

    def figures(self) -> dict[str, RequestFigures]:
        """Return what was counted, by kind of request."""
        return {
            kind: RequestFigures(len(each), *map(float, np.percentile(each, (50, 95, 99)) * 1e3))
            for kind, each in self._seconds.items()
        }

    async def aclose(self) -> None:
        """Leave the connections open: a client that is closed shares them with others."""

    async def close(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            await transport.aclose()


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
