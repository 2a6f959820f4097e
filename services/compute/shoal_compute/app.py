"""The HTTP face of a Compute node; it turns requests into calls and knows no rule of its own."""

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry
from starlette.routing import Route

from shoal_compute.announcing import Announcements
from shoal_compute.gossip import LARGEST_MESSAGE_BYTES
from shoal_compute.gossiping import Gossip
from shoal_compute.holding import HeldQueries
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.totals import Totals
from shoal_compute.uploading import Uploads
from shoal_compute.withdrawals import Withdrawals
from shoal_hosting.application import create_application
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.manifest_routes import MANIFEST_LIMIT_BYTES, MANIFEST_PATH, manifest_routes
from shoal_hosting.problems import problem_document
from shoal_protocol.encoding import canonical_json
from shoal_protocol.envelope import envelope_size
from shoal_protocol.errors import NotReady, ProtocolError, UnknownRound
from shoal_protocol.held import ENTRY_BYTES, MOST_ENTRIES, encode_answer
from shoal_protocol.rounds import LARGEST_DIMENSION, LARGEST_SPEC_BYTES
from shoal_protocol.sharing import ShareKind

_BULK_BYTES: Final = 32 << 20
_UPLOADS_IN_MEMORY_BYTES: Final = 64 << 20
_ROUND_ID: Final = re.compile(r"[0-9a-f]{64}")
_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_UPLOADS: Final = {
    "/v1/rounds/{round_id}/shares": (
        "Upload one share envelope",
        {201: "It is stored durably.", 200: "The same bytes are stored already."},
    ),
    "/v1/rounds/{round_id}/shares/bulk": (
        "Upload share envelopes, each behind its length in 4 bytes, little-endian",
        {200: "`outcomes` has the status of each, in order; each is judged by itself."},
    ),
    "/v1/rounds/{round_id}/shares/held": (
        "Ask which envelopes are stored: a client in 4 bytes, little-endian, and its envelope's "
        "digest, repeated",
        {200: "`held` has one bit for each, in order, the lowest of each byte first, in base64."},
    ),
}


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


def create_app(
    *,
    rounds: RoundBook,
    announcements: Announcements,
    totals: Totals,
    uploads: Uploads,
    held: HeldQueries,
    withdrawals: Withdrawals,
    gossip: Gossip,
    votes_of: Callable[[str], Awaitable[list[bytes]]],
    book: ManifestBook,
    manifest_accepted: Callable[[], Awaitable[None]],
    ready: Callable[[], Awaitable[None]],
    registry: CollectorRegistry,
) -> FastAPI:
    """Return the application."""
    app = create_application(
        "Shoal Compute node",
        ready=ready,
        registry=registry,
        body_limit_bytes_by_ending={
            "/shares": envelope_size(ShareKind.VECTOR, LARGEST_DIMENSION),
            "/shares/bulk": _BULK_BYTES,
            "/shares/held": MOST_ENTRIES * ENTRY_BYTES,
            "/v1/gossip": LARGEST_MESSAGE_BYTES,
            "/v1/rounds": LARGEST_SPEC_BYTES,
            MANIFEST_PATH: MANIFEST_LIMIT_BYTES,
        },
        streamed=(MANIFEST_PATH,),
    )
    app.include_router(manifest_routes(book, accepted=manifest_accepted))
    allowance = Allowance(_UPLOADS_IN_MEMORY_BYTES)

    @app.post("/v1/rounds", status_code=201)
    async def announce(request: Request) -> Response:
        """Announce a round: the body is its signed spec."""
        known, new = await announcements.announce(await request.body())
        return _json(_state(known, rounds.held(known)), 201 if new else 200)

    @app.post("/v1/totals")
    async def end_job(request: Request) -> Response:
        """Say, signed, which rounds of a job were charged: the body is the trainer's signed end."""
        return Response(await totals.sign(await request.body()), media_type=_JSON)

    @app.post("/v1/withdrawals", status_code=201)
    async def withdraw(request: Request) -> Response:
        """Take {"request", "withdrawal"} of a job, both signed: rounds of it are refused then."""
        job, new = await withdrawals.take(await request.body())
        return _json({"job": job}, 201 if new else 200)

    @app.get("/v1/withdrawals/{job}")
    async def show_withdrawal(job: str) -> Response:
        """Return the withdrawal of a job as its analyst signed it."""
        return Response(await withdrawals.show(job), media_type=_JSON)

    @app.get("/v1/rounds/{round_id}")
    async def show(round_id: str) -> Response:
        """Tell where a round stands, in counts."""
        known = await rounds.find(_checked(round_id))
        return _json(_state(known, rounds.held(known)))

    @app.get("/v1/rounds/{round_id}/spec")
    async def show_spec(round_id: str) -> Response:
        """Return the round's signed spec."""
        known = await rounds.find(_checked(round_id))
        return Response(known.spec.encode(), media_type=_JSON)

    @app.get("/v1/rounds/{round_id}/documents")
    async def show_documents(round_id: str) -> Response:
        """Return what nodes and aggregator attested of the round, evidence of misconduct too.

        Partial sums are never among it. The aggregator gives them out once it signed the result;
        any that is out before, with a lying node's own, may make up a round that it abandons.
        """
        known = await rounds.find(_checked(round_id))
        return _json({"documents": [signed.to_json() for signed in known.spoken_of.values()]})

    @app.post("/v1/gossip")
    async def converse(request: Request) -> Response:
        """Take a node's documents and tell it those that it lacks."""
        return Response(await gossip.receive(await request.body()), media_type=_JSON)

    @app.get("/v1/nodes/{name}/newest")
    async def show_newest(name: str) -> Response:
        """Return what a Compute node signed last that is on file here: its newest votes."""
        votes = await votes_of(name)
        return Response(b'{"documents":[' + b",".join(votes) + b"]}", media_type=_JSON)

    # Uploads are by far the most requests: these routes do without FastAPI's machinery.
    async def upload(request: Request) -> Response:
        request.scope["route"] = one
        round_id = _checked(request.path_params["round_id"])
        with allowance.reading() as take:
            status = await uploads.take(round_id, await _body(request, take))
        return Response(b'{"status":%d}' % status, status, media_type=_JSON)

    async def upload_in_bulk(request: Request) -> Response:
        request.scope["route"] = many
        round_id = _checked(request.path_params["round_id"])
        with allowance.reading() as take:
            statuses = await uploads.take_all(round_id, await _body(request, take))
        outcomes = [_outcome(status) for status in statuses]
        body = json.dumps({"outcomes": outcomes}, separators=(",", ":"))
        return Response(body, media_type=_JSON)

    async def ask_for_held(request: Request) -> Response:
        request.scope["route"] = asked
        round_id = _checked(request.path_params["round_id"])
        found = await held.answer(round_id, await request.body())
        return _json({"held": encode_answer(found)})

    one = Route("/v1/rounds/{round_id}/shares", upload, methods=["POST"])
    many = Route("/v1/rounds/{round_id}/shares/bulk", upload_in_bulk, methods=["POST"])
    asked = Route("/v1/rounds/{round_id}/shares/held", ask_for_held, methods=["POST"])
    app.router.routes[:0] = [one, many, asked]  # and come first
    _describe_uploads(app)
    return app


def _describe_uploads(app: FastAPI) -> None:
    """Add to the OpenAPI document the routes that FastAPI does not know."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        schema = generate()
        for path, (what, statuses) in _UPLOADS.items():
            schema["paths"][path] = {
                "post": {
                    "summary": what,
                    "parameters": [
                        {
                            "name": "round_id",
                            "in": "path",
                            "required": True,
                            "schema": {"type": "string", "pattern": f"^{_ROUND_ID.pattern}$"},
                        }
                    ],
                    "requestBody": {"required": True, "content": {_BYTES: {}}},
                    "responses": {
                        str(status): {"description": said} for status, said in statuses.items()
                    },
                }
            }
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


async def _body(request: Request, take: Callable[[int], None]) -> bytes:
    chunks = []
    async for chunk in request.stream():
        take(len(chunk))
        chunks.append(chunk)
    return b"".join(chunks)


def _checked(round_id: str) -> str:
    if not _ROUND_ID.fullmatch(round_id):
        raise UnknownRound("a round's id is 64 lower-case hex digits")
    return round_id


def _state(known: Round, held: int) -> dict[str, Any]:
    return {
        "round": known.id,
        "phase": known.phase.value,
        "reason": known.reason,
        "population_size": known.spec.body.population_size,
        "held": held,
    }


def _outcome(status: int | ProtocolError) -> dict[str, Any]:
    if isinstance(status, ProtocolError):
        return {"status": status.status, "problem": problem_document(status)}
    return {"status": status}


def _json(value: Any, status: int = 200) -> Response:
    return Response(canonical_json(value), status, media_type=_JSON)
