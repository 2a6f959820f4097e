"""The aggregator's HTTP routes: bytes in, bytes out; every decision is `Aggregator`'s.

Those of the log are static files as C2SP tlog-tiles says, entries to log, and proofs.
"""

from dataclasses import replace
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request, Response

from shoal_aggregator.aggregator import Aggregator
from shoal_aggregator.log import LOG, Log
from shoal_aggregator.store import Standing
from shoal_hosting.manifests.manifest_routes import SIGNED_MANIFEST
from shoal_hosting.operators.view import View
from shoal_hosting.server.openapi import (
    BINARY,
    NOTE,
    OCTETS,
    SIGNED,
    TEXT,
    answers,
    having,
    listed_as,
    object_of,
    signed,
    stores,
)
from shoal_hosting.server.replies import (
    RoundId,
    document,
    listed,
    shown,
    taken,
)
from shoal_hosting.server.waiting import Changes, WaitSeconds
from shoal_hosting.service import Resources
from shoal_protocol.log.entries import LogRequest
from shoal_protocol.rounds.attestations import Abandonment, PartialSum, Result
from shoal_protocol.rounds.round_spec import LARGEST_DIMENSION, LARGEST_SPEC_BYTES, RoundSpec
from shoal_protocol.trust.manifest_bundle import LARGEST_MANIFEST_BYTES
from shoal_protocol.wire.errors import (
    MalformedDocument,
    ProtocolError,
    RefusedSpec,
    UnknownRound,
    WrongPhase,
)
from shoal_protocol.wire.service_errors import (
    ConflictingDocument,
    RoundAbandoned,
    WrongCharge,
    WrongCohort,
    WrongRound,
    WrongShare,
)

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


# base64 of 8 bytes for each coordinate, and room for the rest of the document
PARTIAL_SUM_LIMIT_BYTES: Final = LARGEST_DIMENSION * 8 * 4 // 3 + (1 << 16)

_STATE: Final = having("round", "phase", "partial_sums", "evidence")
_SUMS: Final = listed_as("documents", signed(PartialSum))
_OF_NODE: Final = (UnknownRound, *SIGNED, WrongRound, ConflictingDocument)


class NotAbandoned(UnknownRound):
    """The round is open, or has a result."""

    code = "not-abandoned"
    title = "The round was not abandoned"
    remedy = "Ask for the round's result instead."


def create_app(aggregator: Aggregator, log: Log, resources: Resources) -> FastAPI:
    """Return the ASGI application of `aggregator`, which serves its `log`."""

    async def look() -> View:
        return replace(await aggregator.look(), facts=log.facts())

    app = resources.application(
        "Shoal aggregator",
        busy=aggregator.is_busy,
        look=look,
        body_limit_bytes_by_ending={
            "/partial-sums": PARTIAL_SUM_LIMIT_BYTES,
            "/v1/rounds": LARGEST_SPEC_BYTES,
            "/v1/log/manifests": LARGEST_MANIFEST_BYTES,
        },
    )

    @app.post(
        "/v1/rounds",
        **stores(
            having("round"),
            *SIGNED,
            RefusedSpec,
            ConflictingDocument,
            takes=signed(RoundSpec),
        ),
    )
    async def announce(request: Request) -> Response:
        """Take a round spec that the trainer signed: 201, or 200 if it is known."""
        round_id, is_new = await aggregator.announce(await request.body())
        return taken({"round": round_id}, is_new=is_new)

    @app.get("/v1/rounds/{round_id}", **answers(_STATE, UnknownRound))
    async def show_round(round_id: RoundId) -> Response:
        """Say where the round stands, in counts."""
        return shown(await state_of(round_id))

    @app.post(
        "/v1/rounds/{round_id}/partial-sums",
        **stores(
            having("round"),
            *_OF_NODE,
            WrongCharge,
            WrongCohort,
            WrongShare,
            RoundAbandoned,
            takes=signed(PartialSum),
        ),
    )
    async def take_partial_sum(round_id: RoundId, request: Request) -> Response:
        """Take a Compute node's signed partial sum: 201, or 200 if it is on file."""
        is_new = await aggregator.take_partial_sum(round_id, await request.body())
        return taken({"round": round_id}, is_new=is_new)

    @app.post(
        "/v1/rounds/{round_id}/abandonments",
        **stores(having("round"), *_OF_NODE, WrongPhase, takes=signed(Abandonment)),
    )
    async def take_abandonment(round_id: RoundId, request: Request) -> Response:
        """Take a Compute node's signed abandonment: 201, or 200 if it is on file."""
        is_new = await aggregator.take_abandonment(round_id, await request.body())
        return taken({"round": round_id}, is_new=is_new)

    @app.get(
        "/v1/rounds/{round_id}/partial-sums",
        **answers(_SUMS, UnknownRound, RoundAbandoned, pending=_STATE),
    )
    async def show_partial_sums(round_id: RoundId) -> Response:
        """Serve the signed partial sums of a published round: 202 before, 410 if abandoned."""
        documents = await aggregator.find_partial_sums(round_id)
        return await pending(round_id) if documents is None else listed(documents)

    @app.get(
        "/v1/rounds/{round_id}/wrong-sums",
        **answers(_SUMS, UnknownRound, RoundAbandoned, pending=_STATE),
    )
    async def show_wrong_sums(round_id: RoundId) -> Response:
        """Serve the signed partial sums that contradict those of a published round."""
        documents = await aggregator.find_partial_sums(round_id, Standing.WRONG)
        return await pending(round_id) if documents is None else listed(documents)

    @app.get("/v1/nodes/{name}/newest", **answers(_SUMS))
    async def show_newest(name: str) -> Response:
        """Serve a Compute node's signed partial sum of the newest round that has a result."""
        return listed(await aggregator.find_newest_sum(name))

    @app.get(
        "/v1/rounds/{round_id}/result",
        **answers(signed(Result), UnknownRound, RoundAbandoned, pending=_STATE),
    )
    async def show_result(round_id: RoundId, wait: WaitSeconds = 0) -> Response:
        """Serve the signed result: 202 while there is none, 410 if the round was abandoned."""
        stored = await resources.changes.until_found(
            round_id, lambda: aggregator.find_result(round_id), wait
        )
        if stored is None:
            return await pending(round_id)
        return document(stored.document)

    @app.get(
        "/v1/rounds/{round_id}/abandonment",
        **answers(signed(Abandonment), UnknownRound, NotAbandoned),
    )
    async def show_abandonment(round_id: RoundId) -> Response:
        """Serve the aggregator's signed abandonment; 404 if the round was not abandoned."""
        stored = await aggregator.find_abandonment(round_id)
        if stored is None:
            raise NotAbandoned
        return document(stored.document)

    async def state_of(round_id: str) -> dict[str, Any]:
        record = await aggregator.find(round_id)
        return {
            "round": round_id,
            "phase": record.phase.value,
            "partial_sums": record.partial_sums,
            "evidence": record.evidence,
        }

    async def pending(round_id: str) -> Response:
        return shown(await state_of(round_id), 202)

    app.include_router(log_routes(log, resources.changes))
    return app
