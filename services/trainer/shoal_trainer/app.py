"""The trainer's HTTP routes: bytes in, bytes out."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Final

from fastapi import FastAPI, HTTPException, Path, Request, Response
from sqlalchemy import Connection

from shoal_kit.web.openapi import (
    ANY,
    BINARY,
    JobId,
    answers,
    having,
    listed_as,
    signed,
    stores,
)
from shoal_protocol.jobs.declarations import HolderDeclaration
from shoal_protocol.jobs.job_state import Approvals, JobState
from shoal_protocol.jobs.membership import (
    HolderQuery,
    JobWithdrawal,
    JobWithdrawn,
    Membership,
)
from shoal_protocol.privacy.accounting import NOTHING, Balances
from shoal_protocol.privacy.job_costs import epsilon_left
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.dictionary import DataDictionary
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.encoding import format_time
from shoal_protocol.wire.errors import (
    WrongPhase,
)
from shoal_protocol.wire.phases import JobPhase
from shoal_service.replies import (
    document,
    shown,
    taken,
)
from shoal_service.view import by_phase, journal_in_words
from shoal_service.waiting import WaitSeconds
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.study_request import JobCheck, JobsQuery, StudyRequest
from shoal_trainer import memberships, store
from shoal_trainer.certifying import Certifier
from shoal_trainer.crowds.routes import LIMITS, Crowds, crowd_routes
from shoal_trainer.declarations import Declarations
from shoal_trainer.dictionaries import LIMIT_BYTES, Dictionaries
from shoal_trainer.jobs import (
    CertificateIncomplete,
    DocumentsDeleted,
    JobFailed,
    JobFinished,
)
from shoal_trainer.joining import Joining
from shoal_trainer.releases import REPORT
from shoal_trainer.resources import Resources
from shoal_trainer.schema import crowds as crowd_tables
from shoal_trainer.schema import jobs, journal, rounds
from shoal_trainer.store import JobRecord

RoundNumber = Annotated[int, Path(ge=0, lt=2**31)]
_STATE: Final = having("job", "phase", "rounds")


_MOST_GROUPS: Final = 100  # of clients with as much left
_NEWEST_ROUNDS: Final = 16  # whose details a job's state has: it must not grow with the rounds


def _budgets(committed: Balances, consortium: Consortium) -> list[dict[str, Any]]:
    enrolled, cap = consortium.roster.enrolled_set, consortium.manifest.policy.cap
    charged = enrolled & committed.charged
    sizes = Counter(committed.of(charged).values())
    groups = sorted(sizes.items(), key=lambda each: (each[0].mu, each[0].epsilon))
    if untouched := len(enrolled) - len(charged):
        groups.insert(0, (NOTHING, untouched))
    if len(groups) > _MOST_GROUPS:  # the rest, none of whom have less left than this
        rest = sum(size for _, size in groups[_MOST_GROUPS - 1 :])
        groups = [*groups[: _MOST_GROUPS - 1], (committed.largest(enrolled), rest)]
    return [
        {"clients": size, "left": {"pure": pure, "gaussian": gaussian}}
        for spent, size in groups
        for pure, gaussian in [epsilon_left(cap, spent)]
    ]


def _shown(record: JobRecord, approvals: Approvals) -> dict[str, Any]:
    request = record.study
    return {
        "job": record.job,
        "phase": record.phase.value,
        "submitted_at": format_time(record.submitted_at),
        "ends_by": format_time(record.ends_by),
        "analyst": request.analyst,
        "task": request.task.name,
        "columns": list(request.task.column_names),
        "purpose": request.purpose,
        "epsilon": request.privacy.epsilon,
        "delta": request.privacy.delta,
        "approvals": approvals.model_dump(),
        "reason": record.reason,
    }


def _look(db: Connection) -> dict[str, Any]:
    return {
        **journal_in_words(db, journal),
        **by_phase(db, "Jobs", jobs),
        **by_phase(db, "Rounds", rounds),
        **by_phase(db, "Crowd jobs", crowd_tables.jobs),
    }


def create_app(
    joining: Joining,
    certifier: Certifier,
    resources: Resources,
    crowds: Crowds,
    dictionaries: Dictionaries,
    declarations: Declarations,
    *,
    ready: Callable[[], Awaitable[None]],
) -> FastAPI:
    """Return the trainer's ASGI application; its answers name no client."""
    changes, run, book = resources.changes, resources.storage.run, resources.book

    app = crowds.resources.application(  # whose processes hand each other manifests
        "Shoal trainer",
        busy=joining.is_busy,
        look=partial(run, _look),
        ready=ready,
        body_limit_bytes_by_ending={
            "/dictionary": LIMIT_BYTES,
            **LIMITS,
        },
    )
    app.include_router(crowd_routes(crowds))

    async def state(job: str, status: int = 200) -> Response:
        """Say where a job stands: with 202 to who asks for what is not there yet."""
        record = await run(store.find_job, job)
        counts, newest = await run(store.newest_rounds, job, count=_NEWEST_ROUNDS)
        holders = book.current.roster.in_force
        approvals = await run(memberships.approvals, [job], holders=holders)
        found = JobState(
            job=job,
            phase=record.phase,
            population_size=None if record.population is None else len(record.clients),
            joined=record.joined,
            left=await run(memberships.left, job),
            approvals=approvals[job],
            ends_by=record.ends_by,
            round_counts=counts,
            rounds=newest,
            reason=record.reason,
        )
        return shown(found.model_dump(mode="json"), status)

    def refuse_failed(record: JobRecord) -> None:
        if record.phase is JobPhase.FAILED:
            raise JobFailed(record.reason)
        if record.phase is JobPhase.WITHDRAWN:
            raise JobWithdrawn

    async def without_document(job: str) -> JobRecord:
        """Return a job whose document may come yet."""
        record = await run(store.find_job, job)
        refuse_failed(record)
        if record.erased:
            raise DocumentsDeleted
        return record

    @app.post(
        "/v1/jobs",
        **stores(
            having("job"),
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
            takes=signed(JobCheck),
        ),
    )
    async def check(request: Request) -> Response:
        """Say what would become of a job request if it were submitted; nothing is stored."""
        return shown(await joining.check(await request.body()))

    @app.post(
        "/v1/jobs/list",
        **answers(having("jobs", "budgets", "next"), takes=signed(JobsQuery)),
    )
    async def list_for_analyst(request: Request) -> Response:
        """List jobs with who asked what at which price, and what is left, for an analyst alone.

        `budgets` are groups of enrolled clients with the largest epsilon of one more job that each
        of them could pay, pure or Gaussian, by the public ledger and what open jobs may cost.
        """
        query = await crowds.resources.query(await request.body(), JobsQuery)
        records = await run(store.find_jobs, after=query.after, count=query.count)
        joinable = [each.job for each in records if each.phase is JobPhase.JOINING]
        holders = book.current.roster.in_force
        approvals = await run(memberships.approvals, joinable, holders=holders)
        committed = resources.committed.copy()
        return shown(
            {
                "jobs": await asyncio.to_thread(
                    lambda: [
                        _shown(each, approvals.get(each.job, Approvals(holders=holders)))
                        for each in records
                    ]
                ),
                "budgets": await asyncio.to_thread(_budgets, committed, book.current),
                "next": query.after + query.count if len(records) == query.count else None,
            }
        )

    @app.post(
        "/v1/jobs/joining",
        **answers(
            listed_as("jobs", having("job", "phase")),
            takes=signed(HolderQuery),
        ),
    )
    async def list_joining(request: Request) -> Response:
        """List the jobs that may be joined, for data holders."""
        await crowds.resources.query(await request.body(), HolderQuery)
        phase = JobPhase.JOINING
        listed = [{"job": job, "phase": phase.value} for job in await run(store.list_jobs, phase)]
        return shown({"jobs": listed})

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
            takes=signed(HolderDeclaration),
        ),
    )
    async def declare(request: Request) -> Response:
        """Take a data holder's declaration: 201, 200 if it is known, 409 if there is a later."""
        return taken({}, is_new=await declarations.take(await request.body()))

    @app.post(
        "/v1/declarations/list",
        **answers(having("documents", "next"), takes=signed(JobsQuery)),
    )
    async def show_declarations(request: Request) -> Response:
        """Serve analysts data holders' newest declarations, from the holder of index `after` on."""
        query = await crowds.resources.query(await request.body(), JobsQuery)
        return shown(await declarations.page(after=query.after, count=query.count))

    @app.put(
        "/v1/dictionary",
        **stores(having("dictionary"), takes=signed(DataDictionary)),
    )
    async def put_dictionary(request: Request) -> Response:
        """Take the next version of the data dictionary, as the consortium's authority signed it."""
        digest, is_new = await dictionaries.take(await request.body())
        return taken({"dictionary": digest}, is_new=is_new)

    @app.get("/v1/dictionary", **answers(signed(DataDictionary)))
    async def show_dictionary() -> Response:
        """Serve the newest version of the data dictionary: 404 if there is none."""
        return document(await dictionaries.newest())

    @app.get("/v1/jobs/{job}", **answers(_STATE))
    async def show_job(job: JobId) -> Response:
        """Say where the job stands: counts, its newest rounds, and the reason if it failed."""
        return await state(job)

    @app.get("/v1/jobs/{job}/request", **answers(signed(StudyRequest)))
    async def show_request(job: JobId) -> Response:
        """Serve the job request as its analyst signed it."""
        return document((await run(store.find_job, job)).request)

    @app.post(
        "/v1/jobs/{job}/memberships",
        **stores(ANY, takes=signed(Membership)),
    )
    async def take_membership(job: JobId, request: Request) -> Response:
        """Take a data holder's word where it stands with a job of either kind: 201, 200 if known.

        Its owners have yet to approve the job, or did, or refused it; it joins; it leaves.
        """
        status = await joining.take(job, await request.body())
        return shown({"job": job}, status)

    @app.post(
        "/v1/jobs/{job}/withdrawal",
        **stores(
            having("job"),
            takes=signed(JobWithdrawal),
        ),
    )
    async def withdraw(job: JobId, request: Request) -> Response:
        """End a job as its analyst signed: 201, or 200 if it is withdrawn; 409 if it has ended."""
        is_new = await joining.withdraw(job, await request.body())
        return taken({"job": job}, is_new=is_new)

    @app.get(
        "/v1/jobs/{job}/rounds/{number}",
        **answers(signed(RoundSpec), pending=_STATE),
    )
    async def show_round(job: JobId, number: RoundNumber, wait: WaitSeconds = 0) -> Response:
        """Serve the signed round spec once all services accepted it: 202 before, 410 never."""

        async def spec() -> bytes | None:
            if job in resources.opened:
                newest, opened = resources.opened[job]
                return opened if newest >= number else None
            record, accepted = await run(store.find_spec, job, number)
            refuse_failed(record)
            if accepted is None and record.phase is JobPhase.FINISHED:
                raise JobFinished
            return accepted

        found = await changes.until_found(job, spec, wait)
        return await state(job, 202) if found is None else document(found)

    @app.get(
        "/v1/jobs/{job}/result",
        **answers(signed(PosteriorReport), pending=_STATE),
    )
    async def show_result(job: JobId, wait: WaitSeconds = 0) -> Response:
        """Serve the signed posterior report: 202 while there is none, 410 if the job failed."""

        async def report() -> bytes | None:
            if job in resources.opened:  # it runs
                return None
            found = await run(journal.find, REPORT, job)
            if found is None:
                await without_document(job)
            return found

        found = await changes.until_found(job, report, wait)
        return await state(job, 202) if found is None else document(found)

    @app.get(
        "/v1/jobs/{job}/certificate",
        **answers(
            BINARY,
            as_type="application/gzip",
        ),
    )
    async def show_certificate(job: JobId, wait: WaitSeconds = 0) -> Response:
        """Serve the release certificate in gzip: 409 before, 410 if the job failed.

        With `wait`, hold the answer of a finished job back until its certificate is complete.
        """

        async def certificate() -> bytes | None:
            found = await run(store.find_certificate, job)
            if found is None and (await without_document(job)).phase is not JobPhase.FINISHED:
                raise WrongPhase("the job is not finished, and has no certificate yet")
            return found

        found = await changes.until_found(job, certificate, wait)
        if found is None:
            missing = await certifier.missing(job)
            raise CertificateIncomplete(
                "not all of the job's Compute nodes have signed how many of its rounds they "
                f"charged; missing: {', '.join(missing)}"
                if missing
                else None
            )
        return document(found, media_type="application/gzip")

    return app
