"""The HTTP routes of the log: static files as C2SP tlog-tiles says, entries to log, and proofs."""

from typing import Final

from fastapi import APIRouter, Request, Response

from shoal_aggregator.log import LOG, Log
from shoal_hosting.manifests.manifest_routes import SIGNED_MANIFEST
from shoal_hosting.server.openapi import (
    BINARY,
    NOTE,
    OCTETS,
    SIGNED,
    TEXT,
    answers,
    object_of,
    signed,
)
from shoal_hosting.server.replies import shown
from shoal_hosting.server.waiting import Changes, WaitSeconds
from shoal_protocol.log.requests import LogRequest
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError
from shoal_protocol.wire.service_errors import ConflictingDocument

_PLACE: Final = object_of(place={"type": "integer", "minimum": 0})
_FRESH: Final = {"Cache-Control": "max-age=2"}
_FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}


class NotLogged(ProtocolError):
    """The log does not reach so far, or nothing of it is cosigned."""

    code = "not-logged"
    title = "The log has nothing there that a quorum of Compute nodes signed"
    status = 404
    remedy = "Read the log's checkpoint, and ask for what it says that there is."


def log_routes(log: Log, changes: Changes) -> APIRouter:
    """Return the routes of `log`; who waits for a proof hears of `changes`."""
    router = APIRouter()

    @router.get("/log/checkpoint", **answers(TEXT, NotLogged, as_type=NOTE))
    async def show_checkpoint() -> Response:
        """Serve the newest checkpoint of the log that a quorum of Compute nodes signed."""
        note = await log.checkpoint()
        if note is None:
            raise NotLogged
        return Response(note, media_type=NOTE, headers=_FRESH)

    @router.get("/log/{path:path}", **answers(BINARY, NotLogged, as_type=OCTETS))
    async def show_tile(path: str) -> Response:
        """Serve a tile of the log or a bundle of its entries, as C2SP tlog-tiles says."""
        try:
            found = await log.tile(path)
        except MalformedDocument as error:  # nothing is ever there
            raise NotLogged from error
        if found is None:
            raise NotLogged
        return Response(found, media_type=OCTETS, headers=_FOR_EVER)

    @router.post("/v1/log", **answers(_PLACE, *SIGNED, statuses=(201,), takes=signed(LogRequest)))
    async def take_entry(request: Request) -> Response:
        """Log a certificate, by its digest, that the trainer asks for, signed."""
        return shown({"place": await log.take(await request.body())}, 201)

    @router.post(
        "/v1/log/manifests",
        **answers(_PLACE, *SIGNED, ConflictingDocument, statuses=(201,), takes=SIGNED_MANIFEST),
    )
    async def take_manifest(request: Request) -> Response:
        """Log the next version of the manifest, signed: parties believe it by the log's proof."""
        return shown({"place": await log.take_manifest(await request.body())}, 201)

    @router.get("/v1/log/proofs/{place}", **answers(TEXT, NotLogged, as_type=NOTE))
    async def show_proof(place: int, wait: WaitSeconds = 0) -> Response:
        """Serve the proof that the cosigned log has the entry at a place (C2SP tlog-proof)."""
        found = await changes.until_found(LOG, lambda: log.proof(place), wait)
        if found is None:
            raise NotLogged
        return Response(str(found), media_type=NOTE)

    return router
