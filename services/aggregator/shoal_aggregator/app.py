"""The aggregator's HTTP routes: bytes in, bytes out; every decision is `Aggregator`'s."""

from typing import Any, Final

from fastapi import FastAPI, Request, Response

from shoal_aggregator.aggregator import Aggregator
from shoal_aggregator.log import LOG, Log
from shoal_aggregator.store import Standing
from shoal_hosting.server.replies import (
    IfNoneMatch,
    RoundId,
    document,
    listed,
    shown,
    tagged,
    taken,
)
from shoal_hosting.server.waiting import WaitSeconds
from shoal_hosting.service import Resources
from shoal_protocol.rounds.round_spec import LARGEST_DIMENSION
from shoal_protocol.rounds.spec_checks import LARGEST_SPEC_BYTES
from shoal_protocol.trust.manifest_bundle import LARGEST_MANIFEST_BYTES
from shoal_protocol.wire.errors import ProtocolError, UnknownRound

# base64 of 8 bytes for each coordinate, and room for the rest of the document
NOTE: Final = "text/plain; charset=utf-8"
FRESH: Final = {"Cache-Control": "max-age=2"}
FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
PARTIAL_SUM_LIMIT_BYTES: Final = LARGEST_DIMENSION * 8 * 4 // 3 + (1 << 16)


def create_app(aggregator: Aggregator, log: Log, resources: Resources) -> FastAPI:
    """Return the ASGI application of `aggregator`, which serves its `log`."""
    app = resources.application(
        "Shoal aggregator",
        busy=aggregator.is_busy,
        body_limit_bytes_by_ending={
            "/partial-sums": PARTIAL_SUM_LIMIT_BYTES,
            "/v1/rounds": LARGEST_SPEC_BYTES,
            "/v1/log/manifests": LARGEST_MANIFEST_BYTES,
        },
    )

    @app.post("/v1/rounds")
    async def announce(request: Request) -> Response:
        """Take a round spec that the trainer signed: 201, or 200 if it is known."""
        round_id, is_new = await aggregator.announce(await request.body())
        return taken({"round": round_id}, is_new=is_new)

    @app.get("/v1/rounds/{round_id}")
    async def show_round(round_id: RoundId) -> Response:
        """Say where the round stands, in counts."""
        return shown(await state_of(round_id))

    @app.post("/v1/rounds/{round_id}/partial-sums")
    async def take_partial_sum(round_id: RoundId, request: Request) -> Response:
        """Take a Compute node's signed partial sum: 201, or 200 if it is on file."""
        is_new = await aggregator.take_partial_sum(round_id, await request.body())
        return taken({"round": round_id}, is_new=is_new)

    @app.post("/v1/rounds/{round_id}/abandonments")
    async def take_abandonment(round_id: RoundId, request: Request) -> Response:
        """Take a Compute node's signed abandonment: 201, or 200 if it is on file."""
        is_new = await aggregator.take_abandonment(round_id, await request.body())
        return taken({"round": round_id}, is_new=is_new)

    @app.get("/v1/rounds/{round_id}/partial-sums")
    async def show_partial_sums(round_id: RoundId) -> Response:
        """Serve the signed partial sums of a published round: 202 before, 410 if abandoned."""
        documents = await aggregator.find_partial_sums(round_id)
        return await pending(round_id) if documents is None else listed(documents)

    @app.get("/v1/rounds/{round_id}/wrong-sums")
    async def show_wrong_sums(round_id: RoundId) -> Response:
        """Serve the signed partial sums that contradict those of a published round."""
        documents = await aggregator.find_partial_sums(round_id, Standing.WRONG)
        return await pending(round_id) if documents is None else listed(documents)

    @app.get("/v1/nodes/{name}/newest")
    async def show_newest(name: str) -> Response:
        """Serve a Compute node's signed partial sum of the newest round that has a result."""
        return listed(await aggregator.find_newest_sum(name))

    @app.get("/v1/rounds/{round_id}/result")
    async def show_result(
        round_id: RoundId, wait: WaitSeconds = 0, if_none_match: IfNoneMatch = None
    ) -> Response:
        """Serve the signed result: 202 while there is none, 410 if the round was abandoned."""
        stored = await resources.changes.until_found(
            round_id, lambda: aggregator.find_result(round_id), wait
        )
        if stored is None:
            return await pending(round_id)
        return tagged(stored.digest, stored.document, if_none_match)

    @app.get("/v1/rounds/{round_id}/abandonment")
    async def show_abandonment(round_id: RoundId) -> Response:
        """Serve the aggregator's signed abandonment; 404 if the round was not abandoned."""
        stored = await aggregator.find_abandonment(round_id)
        if stored is None:
            raise NotAbandoned
        return document(stored.document)

    @app.get("/log/checkpoint")
    async def show_checkpoint() -> Response:
        """Serve the newest checkpoint of the log that a quorum of Compute nodes signed."""
        note = await log.checkpoint()
        if note is None:
            raise NotLogged
        return Response(note, media_type=NOTE, headers=FRESH)

    @app.get("/log/{path:path}")
    async def show_tile(path: str) -> Response:
        """Serve a tile of the log or a bundle of its entries, as C2SP tlog-tiles says."""
        found = await log.tile(path)
        if found is None:
            raise NotLogged
        return Response(found, media_type="application/octet-stream", headers=FOR_EVER)

    @app.post("/v1/log", status_code=201)
    async def take_entry(request: Request) -> Response:
        """Log a certificate, by its digest, that the trainer asks for, signed."""
        return shown({"place": await log.take(await request.body())}, 201)

    @app.post("/v1/log/manifests", status_code=201)
    async def take_manifest(request: Request) -> Response:
        """Log the next version of the manifest, signed: parties believe it by the log's proof."""
        return shown({"place": await log.take_manifest(await request.body())}, 201)

    @app.get("/v1/log/proofs/{place}")
    async def show_proof(place: int, wait: WaitSeconds = 0) -> Response:
        """Serve the proof that the cosigned log has the entry at a place (C2SP tlog-proof)."""
        found = await resources.changes.until_found(LOG, lambda: log.proof(place), wait)
        if found is None:
            raise NotLogged
        return Response(str(found), media_type=NOTE)

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

    return app


class NotLogged(ProtocolError):
    """The log does not reach so far, or nothing of it is cosigned."""

    code = "not-logged"
    title = "The log has nothing there that a quorum of Compute nodes signed"
    status = 404
    remedy = "Read the log's checkpoint, and ask for what it says that there is."


class NotAbandoned(UnknownRound):
    """The round is open, or has a result."""

    code = "not-abandoned"
    title = "The round was not abandoned"
    remedy = "Ask for the round's result instead."
