"""The aggregator's HTTP routes: bytes in, bytes out; every decision is `Aggregator`'s."""

from typing import Annotated, Any, Final

from fastapi import FastAPI, Header, Request, Response
from prometheus_client import CollectorRegistry
from pydantic import AfterValidator

from shoal_aggregator.aggregator import Aggregator
from shoal_aggregator.rows import Standing
from shoal_hosting.application import create_application
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.manifest_routes import MANIFEST_LIMIT_BYTES, MANIFEST_PATH, manifest_routes
from shoal_hosting.waiting import WaitSeconds
from shoal_protocol.encoding import canonical_json
from shoal_protocol.errors import UnknownRound
from shoal_protocol.rounds import LARGEST_DIMENSION, LARGEST_SPEC_BYTES

JSON: Final = "application/json"
# base64 of 8 bytes for each coordinate, and room for the rest of the document
PARTIAL_SUM_LIMIT_BYTES: Final = LARGEST_DIMENSION * 8 * 4 // 3 + (1 << 16)


def _refuse_other_paths(round_id: str) -> str:
    if len(round_id) != 64 or not set(round_id) <= set("0123456789abcdef"):
        raise UnknownRound
    return round_id


RoundId = Annotated[str, AfterValidator(_refuse_other_paths)]
IfNoneMatch = Annotated[str | None, Header()]


def create_app(aggregator: Aggregator, book: ManifestBook, registry: CollectorRegistry) -> FastAPI:
    """Return the ASGI application of `aggregator`."""
    app = create_application(
        "Shoal aggregator",
        ready=aggregator.is_ready,
        registry=registry,
        body_limit_bytes_by_ending={
            "/partial-sums": PARTIAL_SUM_LIMIT_BYTES,
            "/v1/rounds": LARGEST_SPEC_BYTES,
            MANIFEST_PATH: MANIFEST_LIMIT_BYTES,
        },
        streamed=(MANIFEST_PATH,),
    )
    app.include_router(manifest_routes(book))

    @app.post("/v1/rounds")
    async def announce(request: Request, response: Response) -> dict[str, str]:
        """Take a round spec that the trainer signed: 201, or 200 if it is known."""
        round_id, is_new = await aggregator.announce(await request.body())
        response.status_code = 201 if is_new else 200
        return {"round": round_id}

    @app.get("/v1/rounds/{round_id}")
    async def show_round(round_id: RoundId) -> dict[str, Any]:
        """Say where the round stands, in counts."""
        return await state_of(round_id)

    @app.post("/v1/rounds/{round_id}/partial-sums")
    async def take_partial_sum(
        round_id: RoundId, request: Request, response: Response
    ) -> dict[str, str]:
        """Take a Compute node's signed partial sum: 201, or 200 if it is on file."""
        is_new = await aggregator.take_partial_sum(round_id, await request.body())
        response.status_code = 201 if is_new else 200
        return {"round": round_id}

    @app.post("/v1/rounds/{round_id}/abandonments")
    async def take_abandonment(
        round_id: RoundId, request: Request, response: Response
    ) -> dict[str, str]:
        """Take a Compute node's signed abandonment: 201, or 200 if it is on file."""
        is_new = await aggregator.take_abandonment(round_id, await request.body())
        response.status_code = 201 if is_new else 200
        return {"round": round_id}

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
        stored = await aggregator.changes.until_found(
            round_id, lambda: aggregator.find_result(round_id), wait
        )
        if stored is None:
            return await pending(round_id)
        tag = f'"{stored.digest}"'
        if if_none_match is not None and tag in if_none_match:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(stored.document, media_type=JSON, headers={"ETag": tag})

    @app.get("/v1/rounds/{round_id}/abandonment")
    async def show_abandonment(round_id: RoundId) -> Response:
        """Serve the aggregator's signed abandonment; 404 if the round was not abandoned."""
        stored = await aggregator.find_abandonment(round_id)
        if stored is None:
            raise NotAbandoned
        return Response(stored.document, media_type=JSON)

    def listed(documents: list[bytes]) -> Response:
        return Response(b'{"documents":[' + b",".join(documents) + b"]}", media_type=JSON)

    async def state_of(round_id: str) -> dict[str, Any]:
        record = await aggregator.find(round_id)
        return {
            "round": round_id,
            "phase": record.phase.value,
            "partial_sums": record.partial_sums,
            "evidence": record.evidence,
        }

    async def pending(round_id: str) -> Response:
        return Response(canonical_json(await state_of(round_id)), 202, media_type=JSON)

    return app


class NotAbandoned(UnknownRound):
    """The round is open, or has a result."""

    code = "not-abandoned"
    title = "The round was not abandoned"
    remedy = "Ask for the round's result instead."
