"""The trainer's HTTP routes: bytes in, bytes out; they decide nothing."""

from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response

from shoal_hosting.application import create_application
from shoal_hosting.manifest_routes import MANIFEST_LIMIT_BYTES, MANIFEST_PATH, manifest_routes
from shoal_hosting.paging import After
from shoal_hosting.problems import problem_document
from shoal_hosting.waiting import WaitSeconds
from shoal_protocol.encoding import canonical_json
from shoal_protocol.errors import ProtocolError
from shoal_protocol.phases import JobPhase
from shoal_trainer.crowds.assembly import share_manifests
from shoal_trainer.crowds.routes import SUBMISSIONS_LIMIT_BYTES, Crowds, crowd_routes
from shoal_trainer.enrolment import Enrolment, Outcome
from shoal_trainer.paths import JOINS_LIMIT_BYTES, JSON, IfNoneMatch, JobId, tag_of
from shoal_trainer.records import Records
from shoal_trainer.resources import JOB_LIST, Resources

RoundNumber = Annotated[int, Path(ge=0, lt=2**31)]


def create_app(
    enrolment: Enrolment,
    records: Records,
    resources: Resources,
    crowds: Crowds,
) -> FastAPI:
    """Return the trainer's ASGI application."""
    app = create_application(
        "Shoal trainer",
        ready=records.is_ready,
        registry=resources.registry,
        body_limit_bytes_by_ending={
            "/joins": JOINS_LIMIT_BYTES,
            "/leaves": JOINS_LIMIT_BYTES,
            "/submissions": SUBMISSIONS_LIMIT_BYTES,
            MANIFEST_PATH: MANIFEST_LIMIT_BYTES,
        },
        streamed=(MANIFEST_PATH,),
    )
    app.include_router(
        manifest_routes(resources.book, accepted=partial(share_manifests, crowds.resources))
    )
    app.include_router(crowd_routes(crowds))
    changes = resources.changes

    @app.post("/v1/jobs")
    async def submit(request: Request, response: Response) -> dict[str, str]:
        """Take a job request that an analyst signed: 201, or 200 if it is known."""
        job, is_new = await enrolment.submit(await request.body())
        response.status_code = 201 if is_new else 200
        return {"job": job}

    @app.get("/v1/jobs")
    async def list_jobs(
        phase: JobPhase | None = None, wait: WaitSeconds = 0, if_none_match: IfNoneMatch = None
    ) -> Response:
        """List jobs. With `wait`, hold the answer until there is one, or one of another ETag."""

        async def look() -> bytes | None:
            found = await records.list_jobs(phase)
            listed = canonical_json({"jobs": found})
            if if_none_match is None:
                return listed if found else None
            return None if tag_of(listed) in if_none_match else listed

        listed = await changes.until_found(JOB_LIST, look, wait)
        if listed is None and if_none_match is not None:
            return Response(status_code=304, headers={"ETag": if_none_match})
        listed = listed or canonical_json({"jobs": []})
        return Response(listed, media_type=JSON, headers={"ETag": tag_of(listed)})

    @app.get("/v1/jobs/{job}")
    async def show_job(job: JobId) -> dict[str, Any]:
        """Say where the job stands: counts, its newest rounds, and the reason if it failed."""
        return await records.state(job)

    @app.get("/v1/jobs/{job}/request")
    async def show_request(job: JobId) -> Response:
        """Serve the job request as its analyst signed it."""
        return Response(await records.request(job), media_type=JSON)

    @app.post("/v1/jobs/{job}/joins")
    async def join(job: JobId, request: Request, response: Response) -> dict[str, Any]:
        """Take one signed join, or {"documents": [...]}, in which each is judged by itself."""
        return settled(job, await enrolment.join(job, await request.body()), response)

    @app.post("/v1/jobs/{job}/leaves")
    async def leave(job: JobId, request: Request, response: Response) -> dict[str, Any]:
        """Take one signed leave, or {"documents": [...]}, in which each is judged by itself."""
        return settled(job, await enrolment.leave(job, await request.body()), response)

    @app.post("/v1/jobs/{job}/withdrawal")
    async def withdraw(job: JobId, request: Request, response: Response) -> dict[str, Any]:
        """End a job as its analyst signed: 201, or 200 if it is withdrawn; 409 if it has ended."""
        is_new = await enrolment.withdraw(job, await request.body())
        response.status_code = 201 if is_new else 200
        return {"job": job}

    @app.get("/v1/jobs/{job}/withdrawal")
    async def show_withdrawal(job: JobId) -> Response:
        """Serve the withdrawal as the job's analyst signed it: 409 if the job is not withdrawn."""
        return Response(await records.withdrawal(job), media_type=JSON)

    @app.get("/v1/jobs/{job}/rounds/{number}")
    async def show_round(job: JobId, number: RoundNumber, wait: WaitSeconds = 0) -> Response:
        """Serve the signed round spec once all services accepted it: 202 before, 410 never."""
        spec = await changes.until_found(job, lambda: records.spec(job, number), wait)
        if spec is None:
            return await pending(job)
        return Response(spec, media_type=JSON)

    @app.get("/v1/jobs/{job}/result")
    async def show_result(
        job: JobId, wait: WaitSeconds = 0, if_none_match: IfNoneMatch = None
    ) -> Response:
        """Serve the signed posterior report: 202 while there is none, 410 if the job failed."""
        found = await changes.until_found(job, lambda: records.report(job), wait)
        if found is None:
            return await pending(job)
        return tagged(found, if_none_match)

    @app.get("/v1/jobs/{job}/certificate")
    async def show_certificate(
        job: JobId, wait: WaitSeconds = 0, if_none_match: IfNoneMatch = None
    ) -> Response:
        """Serve the signed release certificate: 409 while there is none, 410 if the job failed.

        With `wait`, hold the answer of a finished job back until its certificate is complete.
        """
        found = await changes.until_found(job, lambda: records.certificate(job), wait)
        if found is None:
            raise await records.incomplete(job)
        return tagged(found, if_none_match)

    @app.get("/v1/ledger")
    async def show_ledger(
        after: After = 0, count: Annotated[int, Query(ge=1, le=1000)] = 1000
    ) -> dict[str, Any]:
        """List the rounds ever announced and what they cost, from entry `after` on."""
        return await records.ledger(after=after, count=count)

    def settled(job: str, outcomes: Outcome | list[Outcome], response: Response) -> dict[str, Any]:
        if isinstance(outcomes, list):
            return {"outcomes": [_told(outcome) for outcome in outcomes]}
        if isinstance(outcomes, ProtocolError):
            raise outcomes
        response.status_code = outcomes
        return {"job": job}

    def tagged(found: tuple[str, bytes], if_none_match: str | None) -> Response:
        digest, document = found
        tag = f'"{digest}"'
        if if_none_match is not None and tag in if_none_match:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(document, media_type=JSON, headers={"ETag": tag})

    async def pending(job: str) -> Response:
        return Response(canonical_json(await records.state(job)), 202, media_type=JSON)

    return app


def _told(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, ProtocolError):
        return {"status": outcome.status, "problem": problem_document(outcome)}
    return {"status": outcome}
