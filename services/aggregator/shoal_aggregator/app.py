"""The aggregator's HTTP routes: bytes in, bytes out; `Aggregator` decides."""

from functools import partial
from typing import Any, Final

from fastapi import FastAPI, Request, Response

from shoal_aggregator import store
from shoal_aggregator.aggregator import Aggregator
from shoal_aggregator.schema import rounds
from shoal_aggregator.store import Standing
from shoal_kit.web.openapi import (
    answers,
    having,
    listed_as,
    signed,
    stores,
)
from shoal_protocol.rounds.attestations import Abandonment, PartialSum, Result
from shoal_protocol.rounds.round_spec import LARGEST_DIMENSION, LARGEST_SPEC_BYTES, RoundSpec
from shoal_service.journal_routes import journal_routes
from shoal_service.replies import (
    RoundId,
    listed,
    shown,
    taken,
)
from shoal_service.service import Resources
from shoal_service.view import by_phase
from shoal_service.waiting import WaitSeconds

# base64 of 8 bytes for each coordinate, and room for the rest of the document
PARTIAL_SUM_LIMIT_BYTES: Final = LARGEST_DIMENSION * 8 * 4 // 3 + (1 << 16)

_SUMS: Final = listed_as("documents", signed(PartialSum))
_OUTCOME: Final = listed_as(
    "documents", {"anyOf": [signed(each) for each in (Result, Abandonment, PartialSum)]}
)


def create_app(aggregator: Aggregator, resources: Resources) -> FastAPI:
    """Return the ASGI application of `aggregator`."""

    run = resources.storage.run

    async def look() -> dict[str, Any]:
        return await run(by_phase, "Rounds", rounds)

    app = resources.application(
        "Shoal aggregator",
        ready=aggregator.keepers.ready,
        busy=aggregator.is_busy,
        look=look,
        body_limit_bytes_by_ending={
            "/ends": PARTIAL_SUM_LIMIT_BYTES,
            "/v1/rounds": LARGEST_SPEC_BYTES,
        },
    )

    @app.post(
        "/v1/rounds",
        **stores(
            having("round"),
            takes=signed(RoundSpec),
        ),
    )
    async def announce(request: Request) -> Response:
        """Take a round spec that the trainer signed: 201, or 200 if it is known."""
        round_id, is_new = await aggregator.announce(await request.body())
        return taken({"round": round_id}, is_new=is_new)

    @app.post(
        "/v1/rounds/{round_id}/ends",
        **stores(
            having("round"),
            takes={"anyOf": [signed(PartialSum), signed(Abandonment)]},
        ),
    )
    async def take(round_id: RoundId, request: Request) -> Response:
        """Take a Compute node's signed partial sum or abandonment: 201, or 200 if on file."""
        is_new = await aggregator.take(round_id, await request.body())
        return taken({"round": round_id}, is_new=is_new)

    @app.get(
        "/v1/rounds/{round_id}/outcome",
        **answers(_OUTCOME, pending=having("round")),
    )
    async def show_outcome(round_id: RoundId, wait: WaitSeconds = 0) -> Response:
        """Serve the signed result, then the partial sums that it is made of: 202 while open.

        Of an abandoned round the signed abandonment is served, and nothing else.
        """
        find = partial(run, store.find_outcome, round_id)
        found = await resources.changes.until_found(round_id, find, wait)
        return shown({"round": round_id}, 202) if found is None else listed(found)

    @app.get("/v1/rounds/{round_id}/wrong-sums", **answers(_SUMS))
    async def show_wrong_sums(round_id: RoundId) -> Response:
        """Serve the signed partial sums that contradict those of a published round."""
        await run(store.state_of, round_id)
        return listed(await run(store.find_words, round_id, Standing.WRONG))

    app.include_router(journal_routes(aggregator.keepers))
    return app
