"""The Compute node's HTTP routes."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from starlette.routing import Route

from shoal_compute.announcing import Announcements
from shoal_compute.charges import ChargesAnswers
from shoal_compute.gossip import LARGEST_MESSAGE_BYTES
from shoal_compute.gossiping import Gossip
from shoal_compute.jobs import Jobs
from shoal_compute.log_witness import LogWitness
from shoal_compute.relaying import Relays, encode_receipts
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.sessions import Sessions
from shoal_compute.totals import Totals
from shoal_compute.uploading import Uploads
from shoal_compute.witnesses import Witnesses
from shoal_hosting.server.paging import After
from shoal_hosting.server.replies import (
    ID_PATTERN,
    JSON,
    RoundId,
    checked_round,
    document,
    listed,
    outcome,
    settled,
    shown,
    taken,
)
from shoal_hosting.service import Resources
from shoal_protocol.jobs.charges_asked import LARGEST_REQUEST_BYTES
from shoal_protocol.log.notes import LARGEST_NOTE_BYTES
from shoal_protocol.log.submissions import (
    ADD_CHECKPOINT,
    SIZE_MEDIA_TYPE,
    WrongOldSize,
    read_submission,
)
from shoal_protocol.rounds.round_spec import LARGEST_DIMENSION
from shoal_protocol.rounds.spec_checks import LARGEST_SPEC_BYTES
from shoal_protocol.sharing.received import envelope_size, unframe
from shoal_protocol.sharing.shares import ShareKind
from shoal_protocol.wire.errors import NotReady
from shoal_protocol.wire.receipt_query import ENTRY_BYTES, MOST_ENTRIES, encode_answer

_BULK_BYTES: Final = 32 << 20
_OPENINGS_BYTES: Final = 16 << 20  # of several in one request
_UPLOADS_IN_MEMORY_BYTES: Final = 64 << 20
_BYTES: Final = "application/octet-stream"
_STORED: Final = b'{"status":201}'
_ALL_STORED: Final = b'{"outcomes":[%s]}'
_ROUND_ID: Final = {
    "name": "round_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": f"^{ID_PATTERN}$"},
}
_PLAIN: Final = {
    "/v1/gossip": (
        "Take a node's documents and tell it those that it lacks",
        {200: "A message of the same form."},
    ),
    "/v1/rounds/{round_id}/shares": (
        "Upload one share envelope",
        {201: "It is stored durably.", 200: "The same bytes are stored already."},
    ),
    "/v1/rounds/{round_id}/shares/bulk": (
        "Upload share envelopes, each behind its length in 4 bytes, little-endian",
        {200: "`outcomes` has the status of each, in order; each is judged by itself."},
    ),
    "/v1/rounds/{round_id}/shares/relayed": (
        "Upload all envelopes of an answer, as in bulk: this node hands the others theirs",
        {200: "`receipts` has each node's signature, in base64, or null."},
    ),
    "/v1/rounds/{round_id}/shares/stored": (
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
    resources: Resources,
    *,
    rounds: RoundBook,
    announcements: Announcements,
    totals: Totals,
    uploads: Uploads,
    relays: Relays,
    jobs: Jobs,
    charges: ChargesAnswers,
    gossip: Gossip,
    witnesses: Witnesses,
    sessions: Sessions,
    log_witness: LogWitness,
) -> FastAPI:
    """Return the application."""
    app = resources.application(
        "Shoal Compute node",
        ready=witnesses.ready,
        busy=rounds.is_busy,
        body_limit_bytes_by_ending={
            "/shares": envelope_size(ShareKind.VECTOR, LARGEST_DIMENSION),
            "/shares/bulk": _BULK_BYTES,
            "/shares/relayed": _BULK_BYTES,
            "/shares/stored": MOST_ENTRIES * ENTRY_BYTES,
            "/v1/openings": _OPENINGS_BYTES,
            "/v1/charges": LARGEST_REQUEST_BYTES,
            "/v1/refusals": envelope_size(ShareKind.VECTOR, LARGEST_DIMENSION),
            "/v1/gossip": LARGEST_MESSAGE_BYTES,
            "/v1/rounds": LARGEST_SPEC_BYTES,
            ADD_CHECKPOINT: LARGEST_NOTE_BYTES,
        },
    )
    allowance = Allowance(_UPLOADS_IN_MEMORY_BYTES)

    @app.post("/v1/jobs", status_code=201)
    async def take_job(request: Request) -> Response:
        """Take a job's signed request: rounds of the job are held to its terms."""
        job, new = await jobs.take(await request.body())
        return taken({"job": job}, is_new=new)

    @app.post("/v1/rounds", status_code=201)
    async def announce(request: Request) -> Response:
        """Announce a round: the body is its signed spec."""
        known, new = await announcements.announce(await request.body())
        return taken(_state(known, rounds.held(known)), is_new=new)

    @app.post("/v1/totals")
    async def end_job(request: Request) -> Response:
        """Say, signed, which rounds of a job were charged: the body is the trainer's signed end."""
        return document(await totals.sign(await request.body()))

    @app.post("/v1/withdrawals", status_code=201)
    async def withdraw(request: Request) -> Response:
        """Take {"request", "withdrawal"} of a job, both signed: rounds of it are refused then."""
        job, new = await jobs.withdraw(await request.body())
        return taken({"job": job}, is_new=new)

    @app.get("/v1/withdrawals/{job}")
    async def show_withdrawal(job: str) -> Response:
        """Return the withdrawal of a job as its analyst signed it."""
        return document(await jobs.show_withdrawal(job))

    @app.post("/v1/charges")
    async def tell_charges(request: Request, after: After = 0) -> Response:
        """Tell the data holder who signed the query what its slots were charged.

        If another machine of the holder counts, the answer is what that one had signed.
        """
        return document(await charges.answer(await request.body(), after=after))

    @app.get("/v1/machines")
    async def show_machines(first: After = 0) -> Response:
        """Return the queries of machines with a restored state, of holders from `first` on."""
        return listed(await charges.restored(first=first))

    @app.get("/v1/rounds/{round_id}")
    async def show(round_id: RoundId) -> Response:
        """Tell where a round stands, in counts."""
        known = await rounds.find(round_id)
        return shown(_state(known, rounds.held(known)))

    @app.get("/v1/rounds/{round_id}/spec")
    async def show_spec(round_id: RoundId) -> Response:
        """Return the round's signed spec."""
        known = await rounds.find(round_id)
        return document(known.spec.encode())

    @app.get("/v1/rounds/{round_id}/documents")
    async def show_documents(round_id: RoundId) -> Response:
        """Return what nodes and aggregator attested of the round, evidence of misconduct too.

        Partial sums are never among it. The aggregator gives them out once it signed the result;
        any that is out before, with a lying node's own, may make up a round that it abandons.
        """
        known = await rounds.find(round_id)
        return listed(signed.encode() for signed in known.spoken_of.values())

    @app.get("/v1/prekey")
    async def show_prekey() -> Response:
        """Return the signed key to which an opening may be sealed now."""
        return document(sessions.prekey())

    @app.post("/v1/openings", status_code=201)
    async def open_session(request: Request) -> Response:
        """Take a signed opening of a session, in place of its data holder's before.

        Or {"documents": [...]}, in which each is judged by itself.
        """
        return settled({}, await sessions.open(await request.body()))

    @app.post("/v1/refusals")
    async def refuse(request: Request) -> Response:
        """Say, signed, that the session of the envelope in the body is not known here."""
        return document((await sessions.refuse(await request.body())).encode())

    @app.get("/v1/nodes/{name}/newest")
    async def show_newest(name: str) -> Response:
        """Return what a Compute node signed last that is on file here: its newest votes."""
        return listed(await witnesses.votes_of(name))

    @app.post(ADD_CHECKPOINT)
    async def add_checkpoint(request: Request) -> Response:
        """Sign a checkpoint of the log that is consistent with the last one signed here.

        The body and the answers are those of C2SP tlog-witness.
        """
        try:
            line = await log_witness.sign(read_submission(await request.body()))
        except WrongOldSize as error:
            status = 400 if error.too_large else error.status
            head = {"Content-Type": SIZE_MEDIA_TYPE}  # a media_type would get a charset
            return Response(f"{error.size}\n", status, headers=head)
        return Response(line, media_type="text/plain")

    @app.get("/witness/{origin_hash}/checkpoint")
    async def show_checkpoint(origin_hash: str) -> Response:
        """Return the last checkpoint signed here of the log whose origin has this SHA-256."""
        return Response(await log_witness.newest(origin_hash), media_type="text/plain")

    # Uploads and gossip are by far the most requests: they do without FastAPI's machinery.
    async def converse(request: Request) -> Response:
        request.scope["route"] = gossiped
        return document(await gossip.receive(await request.body()))

    async def upload(request: Request) -> Response:
        request.scope["route"] = one
        round_id = checked_round(request.path_params["round_id"])
        with allowance.reading() as take:
            status = await uploads.take(round_id, await _body(request, take))
        return document(b'{"status":%d}' % status, status)

    async def upload_in_bulk(request: Request) -> Response:
        request.scope["route"] = many
        round_id = checked_round(request.path_params["round_id"])
        with allowance.reading() as take:
            body = await _body(request, take)
            statuses = await uploads.take_all(round_id, body)
            if statuses.count(201) == len(statuses) and not request.query_params:  # as mostly
                return document(_ALL_STORED % b",".join([_STORED] * len(statuses)))
            outcomes = [outcome(status) for status in statuses]
            if request.query_params.get("receipts"):  # for a node that relays
                receipts = await relays.receipts(round_id, list(unframe(body)), statuses)
                for each, receipt in zip(outcomes, receipts, strict=True):
                    if receipt is not None:
                        each["receipt"] = base64.b64encode(receipt).decode()
        return document(json.dumps({"outcomes": outcomes}, separators=(",", ":")).encode())

    async def relay(request: Request) -> Response:
        request.scope["route"] = relayed
        round_id = checked_round(request.path_params["round_id"])
        with allowance.reading() as take:
            receipts = await relays.take(round_id, await _body(request, take))
        return document(encode_receipts(receipts))

    async def ask_for_receipts(request: Request) -> Response:
        request.scope["route"] = asked
        round_id = checked_round(request.path_params["round_id"])
        found = await uploads.held(round_id, await request.body())
        return shown({"stored": encode_answer(found)})

    one = Route("/v1/rounds/{round_id}/shares", upload, methods=["POST"])
    many = Route("/v1/rounds/{round_id}/shares/bulk", upload_in_bulk, methods=["POST"])
    relayed = Route("/v1/rounds/{round_id}/shares/relayed", relay, methods=["POST"])
    asked = Route("/v1/rounds/{round_id}/shares/stored", ask_for_receipts, methods=["POST"])
    gossiped = Route("/v1/gossip", converse, methods=["POST"])
    app.router.routes[:0] = [gossiped, one, many, relayed, asked]  # and come first
    _describe_plain_routes(app)
    return app


def _describe_plain_routes(app: FastAPI) -> None:
    """Add to the OpenAPI document the routes that FastAPI does not know."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        schema = generate()
        for path, (what, statuses) in _PLAIN.items():
            schema["paths"][path] = {
                "post": {
                    "summary": what,
                    "parameters": [_ROUND_ID] if "{round_id}" in path else [],
                    "requestBody": {
                        "required": True,
                        "content": {_BYTES if "{round_id}" in path else JSON: {}},
                    },
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


def _state(known: Round, held: int) -> dict[str, Any]:
    return {
        "round": known.id,
        "phase": known.phase.value,
        "reason": known.reason,
        "population_size": known.spec.body.population_size,
        "asked": len(known.intake.asked_here),
        "held": held,
    }
