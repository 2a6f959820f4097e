"""Hands requests that are not about crowds to the process that conducts rounds, as they are.

So that all of a trainer's processes can stand behind its one URL: what passes TCP on to any of them
sees no paths, and needs no key.
"""

import asyncio
from typing import Final

import httpx
from fastapi import APIRouter, Request, Response

from shoal_hosting.exchange import LARGEST_ANSWER_BYTES, Connection, Unavailable
from shoal_hosting.waiting import LONGEST_WAIT_SECONDS
from shoal_protocol.errors import NotReady

_METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
_ASKED_WITH: Final = ("accept", "content-type", "if-none-match")
_ANSWERED_WITH: Final = ("allow", "content-type", "etag", "retry-after")
_FORWARDED: Final = "Shoal-Forwarded"
_CONNECTIONS: Final = 4096  # most of them wait for news


class Forwarding:
    """Requests on their way to the conducting process."""

    def __init__(
        self, url: str, certificate: str, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        """Forward to `url`, where the trainer's own certificate must be shown."""
        self._connection = Connection(
            url, certificate, transport=transport, connections=_CONNECTIONS
        )
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Wait for no answer any more: the service is about to stop."""
        self._stopping.set()

    async def close(self) -> None:
        """Let go of the connections."""
        self.stop()
        await self._connection.close()

    async def forward(self, request: Request) -> Response:
        """Return what the conducting process answers.

        Raises:
            NotReady: it does not, or this process stops, or the request came from one like it.
        """
        if _FORWARDED in request.headers:  # the URL is that of all processes: it would go round
            raise NotReady("SHOAL_CONDUCTED_AT is not the process that conducts rounds")
        query = request.scope["query_string"]
        path = request.scope["raw_path"] + (b"?" + query if query else b"")
        asking = self._connection.ask(
            request.method,
            path.decode("latin-1"),
            await request.body() or None,
            limit_bytes=LARGEST_ANSWER_BYTES,
            wait_seconds=LONGEST_WAIT_SECONDS,
            headers={
                _FORWARDED: "1",
                **{name: request.headers[name] for name in _ASKED_WITH if name in request.headers},
            },
        )
        answering = asyncio.ensure_future(asking)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({answering, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise NotReady
            answer = answering.result()
        except Unavailable:
            raise NotReady("the process that conducts rounds does not answer") from None
        finally:
            answering.cancel()
            stopping.cancel()
        headers = {name: answer.headers[name] for name in _ANSWERED_WITH if name in answer.headers}
        return Response(answer.body, answer.status, headers)


def forwarding_routes(forwarding: Forwarding) -> APIRouter:
    """Return a route for all paths that were not routed before."""
    router = APIRouter()
    router.add_api_route(
        "/{path:path}", forwarding.forward, methods=_METHODS, include_in_schema=False
    )
    return router
