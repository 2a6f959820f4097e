"""Speaks HTTP to the other services, whose certificates are pinned; knows no document."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import httpx

from shoal_hosting.connections import pinned_client
from shoal_protocol.manifest import ServiceParty

_READ_TIMEOUT_SECONDS: Final = 10.0
# for a whole exchange, however its bytes come: a peer that drips them holds up nobody for longer
EXCHANGE_SECONDS: Final = 60.0


class PeerUnreachable(Exception):
    """There was no answer, or not one that could be used; try again later."""


@dataclass(frozen=True)
class Reply:
    """A status and a body of bounded size."""

    status: int
    body: bytes = field(repr=False)


class Peers:
    """Connections to parties, kept open from one request to the next."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None) -> None:
        """Use `transport` in place of the network, if there is one."""
        self._transport = transport
        self._connections: dict[str, tuple[ServiceParty, httpx.AsyncClient]] = {}

    async def request(
        self,
        party: ServiceParty,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        limit_bytes: int = 1 << 20,
    ) -> Reply:
        """Send one request and return the reply, whatever its status.

        Raises:
            PeerUnreachable: no connection, a broken one, a slow one, or a reply beyond the limit.
        """
        client = await self._connection(party)
        headers = {"Accept-Encoding": "identity"}  # no small reply is to unfold into a large one
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            request = client.stream(method, path, content=body, headers=headers)
            async with asyncio.timeout(EXCHANGE_SECONDS), request as response:
                if "content-encoding" in response.headers:
                    raise PeerUnreachable("the reply is compressed, which was not asked for")
                received = bytearray()
                async for chunk in response.aiter_bytes():
                    received += chunk
                    if len(received) > limit_bytes:
                        raise PeerUnreachable("the reply is too large")
                return Reply(response.status_code, bytes(received))
        except (httpx.HTTPError, httpx.StreamError, TimeoutError) as error:
            raise PeerUnreachable(type(error).__name__) from error

    async def _connection(self, party: ServiceParty) -> httpx.AsyncClient:
        known, client = self._connections.get(party.name, (None, None))
        if client is not None and known == party:
            return client
        if client is not None:  # a later manifest moved the party or renewed its certificate
            await client.aclose()
        client = pinned_client(
            party.certificate,
            base_url=party.url,
            transport=self._transport,
            read_timeout_seconds=_READ_TIMEOUT_SECONDS,
        )
        self._connections[party.name] = (party, client)
        return client

    async def close(self) -> None:
        """Close every connection."""
        for _, client in self._connections.values():
            await client.aclose()
        self._connections.clear()
