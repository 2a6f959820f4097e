"""The Compute node's HTTP routes."""

import json
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request, Response

from shoal_compute.announcing import Announcements
from shoal_compute.charges import ChargesAnswers
from shoal_compute.gossip import LARGEST_MESSAGE_BYTES, Gossip
from shoal_compute.jobs import Jobs, Totals
from shoal_compute.manifest_signing import ManifestSigning
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.uploading import Uploads
from shoal_kit.web.openapi import (
    ANY,
    BINARY,
    OCTETS,
    After,
    answers,
    having,
    listed_as,
    signed,
    stores,
)
from shoal_protocol.jobs.charges import Charges, ChargesQuery
from shoal_protocol.jobs.charges_asked import LARGEST_REQUEST_BYTES
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.jobs.membership import JobWithdrawal
from shoal_protocol.jobs.totals import JobEnd, JobTotal
from shoal_protocol.rounds.attestations import Abandonment, Holdings, Result, Vote
from shoal_protocol.rounds.round_spec import LARGEST_DIMENSION, LARGEST_SPEC_BYTES, RoundSpec
from shoal_protocol.sharing.received import RECEIPT_QUERY_BYTES, envelope_size
from shoal_protocol.sharing.shares import ShareKind
from shoal_protocol.trust.manifest_bundle import LARGEST_MANIFEST_BYTES
from shoal_protocol.trust.succession import SIGNATURES_PATH, ManifestStatement
from shoal_service.journal_routes import journal_routes
from shoal_service.keepers import Keepers
from shoal_service.manifest_routes import SIGNED_MANIFEST
from shoal_service.replies import (
    RoundId,
    document,
    listed,
    outcome,
    shown,
    taken,
)
from shoal_service.service import Resources
from shoal_service.view import Look

_OUTCOMES: Final = listed_as("outcomes", having("status"))
_UPLOAD: Final[dict[str, Any]] = {"takes": BINARY, "as_body": OCTETS}


def upload_routes(uploads: Uploads) -> APIRouter:
    """Return the routes of share envelopes, and of questions about them."""
    router = APIRouter(prefix="/v1/rounds/{round_id}/shares")

    @router.post("", **stores(having("status"), **_UPLOAD))
    async def upload(round_id: RoundId, request: Request) -> Response:
        """Upload one share envelope."""
        status = await uploads.take(round_id, await request.body())
        return document(b'{"status":%d}' % status, status)

    @router.post("/bulk", **answers(_OUTCOMES, **_UPLOAD))
    async def upload_in_bulk(round_id: RoundId, request: Request) -> Response:
        """Upload share envelopes, each behind its length in 4 bytes, little-endian.

        Each is judged by itself.
        """
        statuses = await uploads.take_all(round_id, await request.body())
        outcomes = [outcome(status) for status in statuses]
        return document(json.dumps({"outcomes": outcomes}, separators=(",", ":")).encode())

    @router.post("/stored", **answers(having("stored"), **_UPLOAD))
    async def ask_for_receipt(round_id: RoundId, request: Request) -> Response:
        """Ask whether an envelope is stored.

        The body is its data holder's index in 4 bytes, little-endian, and its digest.
        """
        return shown({"stored": await uploads.has(round_id, await request.body())})

    return router


_BULK_BYTES: Final = 32 << 20
_STATE: Final = having("round", "phase", "reason", "population_size", "asked", "held")


def create_app(
    resources: Resources,
    *,
    rounds: RoundBook,
    announcements: Announcements,
    totals: Totals,
    uploads: Uploads,
    jobs: Jobs,
    charges: ChargesAnswers,
    gossip: Gossip,
    keepers: Keepers,
    manifest_signing: ManifestSigning,
    look: Look,
) -> FastAPI:
    """Return the application."""
    app = resources.application(
        "Shoal Compute node",
        ready=keepers.ready,
        busy=totals.is_busy,
        look=look,
        body_limit_bytes_by_ending={
            "/shares": envelope_size(ShareKind.VECTOR, LARGEST_DIMENSION),
            "/shares/bulk": _BULK_BYTES,
            "/shares/stored": RECEIPT_QUERY_BYTES,
            "/v1/charges": LARGEST_REQUEST_BYTES,
            "/v1/gossip": LARGEST_MESSAGE_BYTES,
            "/v1/rounds": LARGEST_SPEC_BYTES,
            SIGNATURES_PATH: LARGEST_MANIFEST_BYTES,
        },
    )

    @app.post(
        "/v1/jobs",
        **stores(having("job"), takes=signed(JobRequest)),
    )
    async def take_job(request: Request) -> Response:
        """Take a job's signed request: rounds of the job are held to its terms."""
        job, new = await jobs.take(await request.body())
        return taken({"job": job}, is_new=new)

    @app.post(
        "/v1/rounds",
        **stores(
            _STATE,
            takes=signed(RoundSpec),
        ),
    )
    async def announce(request: Request) -> Response:
        """Announce a round: the body is its signed spec."""
        known, new = await announcements.announce(await request.body())
        return taken(_state(known), is_new=new)

    @app.post(
        "/v1/totals",
        **answers(signed(JobTotal), takes=signed(JobEnd)),
    )
    async def end_job(request: Request) -> Response:
        """Say, signed, which rounds of a job were charged: the body is the trainer's signed end."""
        return document(await totals.sign(await request.body()))

    @app.post(
        "/v1/withdrawals",
        **stores(
            having("job"),
            takes=signed(JobWithdrawal),
        ),
    )
    async def withdraw(request: Request) -> Response:
        """Take a job's signed withdrawal: rounds of the job are refused then."""
        job, new = await jobs.withdraw(await request.body())
        return taken({"job": job}, is_new=new)

    @app.post(
        "/v1/charges",
        **answers(
            {"anyOf": [signed(Charges), signed(ChargesQuery)]},
            takes=signed(ChargesQuery),
        ),
    )
    async def tell_charges(request: Request, after: After = 0) -> Response:
        """Tell the data holder who signed the query what its slots were charged.

        If another machine of the holder counts, the answer is what that one had signed.
        """
        return document(await charges.answer(await request.body(), after=after))

    @app.get("/v1/rounds/{round_id}", **answers(_STATE))
    async def show(round_id: RoundId) -> Response:
        """Tell where a round stands, in counts."""
        known = await rounds.find(round_id)
        return shown(_state(known))

    @app.get("/v1/rounds/{round_id}/spec", **answers(signed(RoundSpec)))
    async def show_spec(round_id: RoundId) -> Response:
        """Return the round's signed spec."""
        return document((await rounds.find(round_id)).spec.encode())

    @app.get(
        "/v1/rounds/{round_id}/documents",
        **answers(
            listed_as(
                "documents",
                {"anyOf": [signed(each) for each in (Holdings, Vote, Result, Abandonment)]},
            ),
        ),
    )
    async def show_documents(round_id: RoundId) -> Response:
        """Return what nodes and aggregator attested of the round, evidence of misconduct too.

        Partial sums are never among it. The aggregator gives them out once it signed the result;
        any that is out before, with a lying node's own, may make up a round that it abandons.
        """
        known = await rounds.find(round_id)
        return listed(signed.encode() for signed in known.spoken_of.values())

    @app.post(
        SIGNATURES_PATH,
        **answers(
            signed(ManifestStatement),
            takes=SIGNED_MANIFEST,
        ),
    )
    async def sign_manifest(request: Request) -> Response:
        """Sign the next version of the manifest, the only one of its number ever."""
        return document(await manifest_signing.sign(await request.body()))

    @app.post("/v1/gossip", **answers(ANY, takes=ANY))
    async def converse(request: Request) -> Response:
        """Take a node's documents and tell it those that it lacks."""
        return document(await gossip.receive(await request.body()))

    app.include_router(upload_routes(uploads))
    app.include_router(journal_routes(keepers))
    return app


def _state(known: Round) -> dict[str, Any]:
    return {
        "round": known.id,
        "phase": known.phase.value,
        "failure": None if known.failure is None else known.failure.model_dump(),
        "population_size": known.spec.body.population_size,
        "asked": len(known.intake.asked_here),
        "held": len(known.held),
    }
