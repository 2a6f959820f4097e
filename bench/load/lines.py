"""Connections to a service under load, over a meter."""

from typing import Any

from bench.load.metering import Meter
from shoal_kit.peers.exchange import LARGEST_ANSWER_BYTES, Connection, Reply, Unavailable
from shoal_kit.peers.peer import LATER
from shoal_protocol.trust.manifest import ServiceParty


class Line:
    """Questions to one party; as many at once as the meter has connections."""

    def __init__(self, party: ServiceParty, meter: Meter) -> None:
        """Open nothing yet; the connections are the meter's."""
        self._connection = Connection(party.url, party.certificate, transport=meter)

    async def get(self, path: str, **parameters: str | int) -> Reply:
        """Ask.

        Raises:
            Unavailable: no answer, or one that says to come back later.
        """
        waits = int(parameters.get("wait", 0))
        return await self._request("GET", path, parameters=parameters, wait_seconds=waits)

    async def post(self, path: str, content: bytes, media_type: str) -> Reply:
        """Send.

        Raises:
            Unavailable: as `get`.
        """
        return await self._request("POST", path, content, media_type=media_type)

    async def _request(
        self, method: str, path: str, content: bytes | None = None, **how: Any
    ) -> Reply:
        reply = await self._connection.ask(
            method, path, content, limit_bytes=LARGEST_ANSWER_BYTES, **how
        )
        if reply.status in LATER or reply.status >= 500:
            later = Unavailable(f"status {reply.status}")
            later.retry_after_seconds = reply.retry_after_seconds
            raise later
        return reply
