"""The aggregator's HTTP routes: bytes in, bytes out; every decision is `Aggregator`'s."""

from dataclasses import replace
from typing import Any, Final

from fastapi import FastAPI, Request, Response

from shoal_aggregator.aggregator import Aggregator
from shoal_aggregator.log import Log
from shoal_aggregator.log_routes import log_routes
from shoal_aggregator.store import Standing
from shoal_hosting.operators.view import View
from shoal_hosting.server.openapi import SIGNED, answers, having, listed_as, signed, stores
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
from shoal_protocol.rounds.attestations import Abandonment, PartialSum, Result
from shoal_protocol.rounds.round_spec import LARGEST_DIMENSION, RoundSpec
from shoal_protocol.rounds.spec_checks import LARGEST_SPEC_BYTES
from shoal_protocol.trust.manifest_bundle import LARGEST_MANIFEST_BYTES
from shoal_protocol.wire.errors import RefusedSpec, UnknownRound, WrongPhase
from shoal_protocol.wire.service_errors import (
    ConflictingDocument,
    RoundAbandoned,
    WrongCharge,
    WrongCohort,
    WrongLength,
    WrongResidue,
    WrongRound,
)

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
            WrongLength,
            WrongResidue,
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
        **answers(signed(Result), UnknownRound, RoundAbandoned, pending=_STATE, is_tagged=True),
    )
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
