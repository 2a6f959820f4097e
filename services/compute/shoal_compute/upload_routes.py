"""The Compute node's routes for uploads of shares, and for gossip: by far the most requests.

They do without FastAPI's machinery.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from starlette.routing import Route

from shoal_compute.gossiping import Gossip
from shoal_compute.uploading import Uploads
from shoal_hosting.server.openapi import (
    ANY,
    BINARY,
    ID_SCHEMA,
    OCTETS,
    answers,
    having,
    listed_as,
    stores,
)
from shoal_hosting.server.replies import checked_round, document, outcome, shown
from shoal_protocol.wire import service_errors
from shoal_protocol.wire.errors import (
    BadSignature,
    MalformedDocument,
    NotReady,
    RevokedHolder,
    UnknownHolder,
    UnknownRound,
    UnsupportedVersion,
    WrongManifest,
)
from shoal_protocol.wire.receipt_query import encode_answer

_UPLOADS_IN_MEMORY_BYTES: Final = 64 << 20
_STORED: Final = b'{"status":201}'
_ALL_STORED: Final = b'{"outcomes":[%s]}'
_OUTCOMES: Final = listed_as("outcomes", having("status"))
_OF_ENVELOPE: Final = (
    *(UnsupportedVersion, WrongManifest, BadSignature, UnknownHolder, RevokedHolder),
    *(
        service_errors.WrongRound,
        service_errors.WrongNode,
        service_errors.WrongLength,
        service_errors.WrongShareKind,
        service_errors.WrongResidue,
        service_errors.NotInPopulation,
    ),
    *(
        service_errors.UnopenableCiphertext,
        service_errors.TransplantedCiphertext,
        service_errors.ConflictingShare,
    ),
    *(
        service_errors.Superseded,
        service_errors.BeforeRestore,
        service_errors.TooLate,
        service_errors.RoundAbandoned,
    ),
)
_UPLOAD: Final[dict[str, Any]] = {"takes": BINARY, "as_body": OCTETS}
_ROUND: Final = {"name": "round_id", "in": "path", "required": True, "schema": ID_SCHEMA}


class Allowance:
    """Bounds the bytes of uploads that are in memory at once."""

    def __init__(self, limit_bytes: int) -> None:
        self._left = limit_bytes

    @contextmanager
    def reading(self) -> Iterator[Callable[[int], None]]:
        """Give a function that counts bytes as they arrive; all are given back at the end.

        That function raises `NotReady` when there are too many.
        """
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            if size > self._left:
                raise NotReady("too many uploads at once")
            self._left -= size
            taken += size

        try:
            yield take
        finally:
            self._left += taken


def install_upload_routes(app: FastAPI, uploads: Uploads, gossip: Gossip) -> None:
    """Have `app` answer uploads, questions about them, and gossip."""
    allowance = Allowance(_UPLOADS_IN_MEMORY_BYTES)

    async def converse(request: Request) -> Response:
        """Take a node's documents and tell it those that it lacks."""
        request.scope["route"] = gossiped
        return document(await gossip.receive(await request.body()))

    async def upload(request: Request) -> Response:
        """Upload one share envelope."""
        request.scope["route"] = one
        round_id = checked_round(request.path_params["round_id"])
        with allowance.reading() as take:
            status = await uploads.take(round_id, await _body(request, take))
        return document(b'{"status":%d}' % status, status)

    async def upload_in_bulk(request: Request) -> Response:
        """Upload share envelopes, each behind its length in 4 bytes, little-endian.

        Each is judged by itself.
        """
        request.scope["route"] = many
        round_id = checked_round(request.path_params["round_id"])
        with allowance.reading() as take:
            statuses = await uploads.take_all(round_id, await _body(request, take))
        if statuses.count(201) == len(statuses):  # the usual case, encoded without `json`
            return document(_ALL_STORED % b",".join([_STORED] * len(statuses)))
        outcomes = [outcome(status) for status in statuses]
        return document(json.dumps({"outcomes": outcomes}, separators=(",", ":")).encode())

    async def ask_for_receipts(request: Request) -> Response:
        """Ask which envelopes are stored.

        The body is a client in 4 bytes, little-endian, and its envelope's digest, repeated. The
        answer has one bit for each, in order, the lowest of each byte first, in base64.
        """
        request.scope["route"] = asked
        round_id = checked_round(request.path_params["round_id"])
        found = await uploads.held(round_id, await request.body())
        return shown({"stored": encode_answer(found)})

    gossiped = Route("/v1/gossip", converse, methods=["POST"])
    one = Route("/v1/rounds/{round_id}/shares", upload, methods=["POST"])
    many = Route("/v1/rounds/{round_id}/shares/bulk", upload_in_bulk, methods=["POST"])
    asked = Route("/v1/rounds/{round_id}/shares/stored", ask_for_receipts, methods=["POST"])
    _document(app, gossiped, answers(ANY, MalformedDocument, UnsupportedVersion, takes=ANY))
    of_one = (UnknownRound, service_errors.MalformedEnvelope, *_OF_ENVELOPE)
    _document(app, one, stores(having("status"), *of_one, **_UPLOAD))
    of_many = (UnknownRound, service_errors.MalformedEnvelope)
    _document(app, many, answers(_OUTCOMES, *of_many, **_UPLOAD))
    of_query = (UnknownRound, service_errors.MalformedQuery)
    _document(app, asked, answers(having("stored"), *of_query, **_UPLOAD))
    app.router.routes[:0] = [gossiped, one, many, asked]  # they come first


def _document(app: FastAPI, route: Route, declared: dict[str, Any]) -> None:
    """Add a route that FastAPI documents, and that `route` answers before it."""
    if "{round_id}" in route.path:
        declared["openapi_extra"]["parameters"] = [_ROUND]
    app.add_api_route(route.path, route.endpoint, methods=["POST"], **declared)


async def _body(request: Request, take: Callable[[int], None]) -> bytes:
    chunks = []
    async for chunk in request.stream():
        take(len(chunk))
        chunks.append(chunk)
    return b"".join(chunks)
