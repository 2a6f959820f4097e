"""The trainer's HTTP routes: bytes in, bytes out."""

from typing import Annotated, Final

from fastapi import FastAPI, HTTPException, Path, Request, Response

from shoal_hosting.server.openapi import (
    ANY,
    BINARY,
    SIGNED,
    After,
    JobId,
    answers,
    having,
    listed_as,
    one_or_several,
    signed,
    stores,
)
from shoal_hosting.server.replies import (
    Count,
    document,
    settled,
    shown,
    taken,
)
from shoal_hosting.server.waiting import WaitSeconds
from shoal_protocol.certificates.posterior_report import PosteriorReport
from shoal_protocol.certificates.study_request import JobCheck, JobsQuery, StudyRequest
from shoal_protocol.jobs.declarations import HolderDeclaration
from shoal_protocol.jobs.membership import (
    ApprovalNotice,
    HolderQuery,
    JobWithdrawal,
    JobWithdrawn,
    Join,
    Leave,
)
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.dictionary import DataDictionary
from shoal_protocol.wire.errors import (
    RefusedJob,
    RevokedHolder,
    UnknownHolder,
    UnknownJob,
    WrongPhase,
)
from shoal_protocol.wire.service_errors import (
    BudgetExceeded,
    HolderLeft,
    OutdatedDeclaration,
    StaleQuery,
)
from shoal_trainer import store
from shoal_trainer.crowds.routes import LIMITS, Crowds, crowd_routes
from shoal_trainer.declarations import Declarations
from shoal_trainer.dictionaries import LIMIT_BYTES, Dictionaries, UnknownDictionary
from shoal_trainer.job_views import JobViews, check_query
from shoal_trainer.jobs import (
    CertificateIncomplete,
    DocumentsDeleted,
    JobFailed,
    JobFinished,
    WrongJob,
)
from shoal_trainer.joining import Joining
from shoal_trainer.resources import Resources

LOG_SECONDS: Final = 10.0
JOINS_LIMIT_BYTES: Final = 16 << 20
RoundNumber = Annotated[int, Path(ge=0, lt=2**31)]
_STATE: Final = having("job", "phase", "rounds")
_ENDED: Final = (UnknownJob, JobFailed, JobWithdrawn)
_KEPT: Final = (*_ENDED, DocumentsDeleted)
_BY_HOLDER: Final = (UnknownJob, *SIGNED, UnknownHolder, RevokedHolder, WrongJob, WrongPhase)


def create_app(
    joining: Joining,
    views: JobViews,
    resources: Resources,
    crowds: Crowds,
    dictionaries: Dictionaries,
    declarations: Declarations,
) -> FastAPI:
    """Return the trainer's ASGI application."""
    app = crowds.resources.application(  # whose processes hand each other manifests
        "Shoal trainer",
        busy=joining.is_busy,
        look=views.look,
        ready=resources.ready,
        body_limit_bytes_by_ending={
            "/dictionary": LIMIT_BYTES,
            "/joins": JOINS_LIMIT_BYTES,
            "/leaves": JOINS_LIMIT_BYTES,
            "/approvals": JOINS_LIMIT_BYTES,
            **LIMITS,
        },
    )
    app.include_router(crowd_routes(crowds))
    changes = resources.changes

    @app.post(
        "/v1/jobs",
        **stores(
            having("job"),
            *SIGNED,
            RefusedJob,
            BudgetExceeded,
            takes=signed(StudyRequest),
        ),
    )
    async def submit(request: Request) -> Response:
        """Take a job request that an analyst signed: 201, or 200 if it is known."""
        job, is_new = await joining.submit(await request.body())
        return taken({"job": job}, is_new=is_new)

    @app.post(
        "/v1/jobs/check",
        **answers(
            having("refusal", "able", "left", "services", "asked_at", "heard"),
            *SIGNED,
            takes=signed(JobCheck),
        ),
    )
    async def check(request: Request) -> Response:
        """Say what would become of a job request if it were submitted; nothing is stored."""
        return shown(await joining.check(await request.body()))

    @app.post(
        "/v1/jobs/list",
        **answers(having("jobs", "budgets", "next"), *SIGNED, StaleQuery, takes=signed(JobsQuery)),
    )
    async def list_for_analyst(request: Request) -> Response:
        """List jobs with who asked what at which price, and what is left, for an analyst alone."""
        return shown(await views.list_for_analyst(await request.body()))

    @app.post(
        "/v1/jobs/joining",
        **answers(
            listed_as("jobs", having("job", "phase")),
            *SIGNED,
            UnknownHolder,
            RevokedHolder,
            StaleQuery,
            takes=signed(HolderQuery),
        ),
    )
    async def list_joining(request: Request) -> Response:
        """List the jobs that may be joined, for data holders."""
        await check_query(crowds.resources, await request.body(), HolderQuery)
        return shown(await views.list_joining())

    @app.get("/v1/jobs/check", include_in_schema=False)
    @app.get("/v1/jobs/joining", include_in_schema=False)
    @app.get("/v1/jobs/list", include_in_schema=False)
    async def refuse_to_get() -> None:
        """Say that the method is wrong, not that there is no such job."""
        raise HTTPException(405)

    @app.post(
        "/v1/declarations",
        **stores(
            ANY,
            *SIGNED,
            UnknownHolder,
            RevokedHolder,
            OutdatedDeclaration,
            takes=signed(HolderDeclaration),
        ),
    )
    async def declare(request: Request) -> Response:
        """Take a data holder's declaration: 201, 200 if it is known, 409 if there is a later."""
        return taken({}, is_new=await declarations.take(await request.body()))

    @app.post(
        "/v1/declarations/list",
        **answers(having("documents", "next"), *SIGNED, StaleQuery, takes=signed(JobsQuery)),
    )
    async def show_declarations(request: Request) -> Response:
        """Serve analysts data holders' newest declarations, from the holder of index `after` on."""
        query = await check_query(crowds.resources, await request.body(), JobsQuery)
        return shown(await declarations.page(after=query.after, count=query.count))

    @app.put(
        "/v1/dictionary",
        **stores(having("dictionary"), *SIGNED, takes=signed(DataDictionary)),
    )
    async def put_dictionary(request: Request) -> Response:
        """Take the next version of the data dictionary, as the consortium's authority signed it."""
        digest, is_new = await dictionaries.take(await request.body())
        return taken({"dictionary": digest}, is_new=is_new)

    @app.get("/v1/dictionary", **answers(signed(DataDictionary), UnknownDictionary))
    async def show_dictionary() -> Response:
        """Serve the newest version of the data dictionary: 404 if there is none."""
        return document(await dictionaries.newest())

    @app.get("/v1/jobs/{job}", **answers(_STATE, UnknownJob))
    async def show_job(job: JobId) -> Response:
        """Say where the job stands: counts, its newest rounds, and the reason if it failed."""
        return shown(await views.state(job))

    @app.get("/v1/jobs/{job}/request", **answers(signed(StudyRequest), UnknownJob))
    async def show_request(job: JobId) -> Response:
        """Serve the job request as its analyst signed it."""
        return document((await resources.storage.run(store.find_job, job)).request)

    @app.post(
        "/v1/jobs/{job}/joins",
        **stores(ANY, *_BY_HOLDER, HolderLeft, takes=one_or_several(signed(Join))),
    )
    async def join(job: JobId, request: Request) -> Response:
        """Take one signed join, or {"documents": [...]}, in which each is judged by itself."""
        return settled({"job": job}, await joining.take(job, await request.body(), Join))

    @app.post(
        "/v1/jobs/{job}/leaves",
        **stores(ANY, *_BY_HOLDER, takes=one_or_several(signed(Leave))),
    )
    async def leave(job: JobId, request: Request) -> Response:
        """Take one signed leave, or {"documents": [...]}, in which each is judged by itself."""
        return settled({"job": job}, await joining.take(job, await request.body(), Leave))

    @app.post(
        "/v1/jobs/{job}/approvals",
        **stores(ANY, *_BY_HOLDER, takes=one_or_several(signed(ApprovalNotice))),
    )
    async def note(job: JobId, request: Request) -> Response:
        """Take a data holder's word that its owners have yet to approve the job, or refused it.

        One signed notice, or {"documents": [...]}, in which each is judged by itself.
        """
        return settled({"job": job}, await joining.take(job, await request.body(), ApprovalNotice))

    @app.post(
        "/v1/jobs/{job}/withdrawal",
        **stores(
            having("job"),
            UnknownJob,
            *SIGNED,
            WrongPhase,
            takes=signed(JobWithdrawal),
        ),
    )
    async def withdraw(job: JobId, request: Request) -> Response:
        """End a job as its analyst signed: 201, or 200 if it is withdrawn; 409 if it has ended."""
        is_new = await joining.withdraw(job, await request.body())
        return taken({"job": job}, is_new=is_new)

    @app.get(
        "/v1/jobs/{job}/withdrawal",
        **answers(signed(JobWithdrawal), UnknownJob, WrongPhase, DocumentsDeleted),
    )
    async def show_withdrawal(job: JobId) -> Response:
        """Serve the withdrawal as the job's analyst signed it: 409 if the job is not withdrawn."""
        return document(await views.withdrawal(job))

    @app.get(
        "/v1/jobs/{job}/rounds/{number}",
        **answers(signed(RoundSpec), *_ENDED, JobFinished, pending=_STATE),
    )
    async def show_round(job: JobId, number: RoundNumber, wait: WaitSeconds = 0) -> Response:
        """Serve the signed round spec once all services accepted it: 202 before, 410 never."""
        spec = await changes.until_found(job, lambda: views.spec(job, number), wait)
        if spec is None:
            return await pending(job)
        return document(spec)

    @app.get(
        "/v1/jobs/{job}/result",
        **answers(signed(PosteriorReport), *_KEPT, pending=_STATE),
    )
    async def show_result(job: JobId, wait: WaitSeconds = 0) -> Response:
        """Serve the signed posterior report: 202 while there is none, 410 if the job failed."""
        found = await changes.until_found(job, lambda: views.report(job), wait)
        if found is None:
            return await pending(job)
        return document(found)

    @app.get(
        "/v1/jobs/{job}/certificate",
        **answers(
            BINARY,
            *_KEPT,
            WrongPhase,
            CertificateIncomplete,
            as_type="application/gzip",
        ),
    )
    async def show_certificate(job: JobId, wait: WaitSeconds = 0) -> Response:
        """Serve the signed release certificate in gzip: 409 before, 410 if the job failed.

        With `wait`, hold the answer of a finished job back until its certificate is complete, and
        `LOG_SECONDS` of that for the proof that the log has it.
        """
        found = await changes.until_found(job, lambda: views.certificate(job), wait)
        if found is not None and not found.logged:
            await changes.until_found(job, lambda: views.logged(job), min(wait, LOG_SECONDS))
            found = await views.certificate(job)
        if found is None:
            raise await views.incomplete(job)
        return document(found.document, media_type="application/gzip")

    @app.get(
        "/v1/ledger",
        dependencies=crowds.resources.for_the_operator,
        **answers(having("entries", "next", "withdrawn"), 401),
    )
    async def show_ledger(after: After = 0, count: Count = 1000) -> Response:
        """List the rounds ever announced and what they cost, from entry `after` on."""
        return shown(await views.ledger(after=after, count=count))

    async def pending(job: str) -> Response:
        return shown(await views.state(job), 202)

    return app
