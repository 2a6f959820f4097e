"""The HTTP routes of crowd jobs, and what they show, which names no client."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
from fastapi import APIRouter, HTTPException, Path, Request, Response

from shoal_kit.web.openapi import (
    ANY,
    After,
    JobId,
    answers,
    having,
    listed_as,
    signed,
    stores,
)
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    InstanceHead,
    Submission,
    SubmissionReceipt,
)
from shoal_protocol.jobs.job_state import Approvals
from shoal_protocol.jobs.membership import HolderQuery, JobWithdrawal
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.encoding import canonical_json, format_time, parse_canonical_json
from shoal_protocol.wire.errors import (
    ProtocolError,
)
from shoal_protocol.wire.phases import CrowdPhase
from shoal_service.replies import (
    Count,
    document,
    shown,
    taken,
)
from shoal_service.waiting import WaitSeconds
from shoal_studies.study_request import JobsQuery
from shoal_trainer import memberships, schema
from shoal_trainer.crowds import store
from shoal_trainer.crowds.conducting import Conductor
from shoal_trainer.crowds.drawing import Draws
from shoal_trainer.crowds.store import CrowdBook, open_crowds
from shoal_trainer.crowds.submitting import Submissions
from shoal_trainer.resources import Resources


class UnknownInstance(ProtocolError):
    """An instance that the job does not have."""

    title = "The crowd job has no such instance"
    status = 404
    remedy = "Instances are numbered from 0; the job's request says how many there are."


def _listed(encoded: bytes, phase: str, contributions: int) -> dict[str, Any]:
    request = decode(encoded, CrowdJobRequest).body
    return {
        "job": request.digest,
        "phase": phase,
        "analyst": request.analyst,
        "family": request.task.family,
        "epsilon": request.task.epsilon,
        "contributions": contributions,
        "wanted": request.contributions,
        "closes_at": format_time(request.closes_at),
    }


def _state_shown(
    request: CrowdJobRequest,
    state: Any,
    instances: Sequence[InstanceHead],
    approvals: Approvals,
) -> bytes:
    """Return where a crowd job stands, in JSON.

    `spread` is, for each weight, the variance over instances (divisor k - 1) in squared units of
    the weight; null with a single instance.
    """
    weights = np.array([each.weights for each in instances]) / request.task.grid
    spread = weights.var(axis=0, ddof=1).tolist() if len(instances) > 1 else None
    return canonical_json(
        {
            "job": request.digest,
            "phase": state.phase,
            "contributions": state.contributions,
            "contributors": state.contributors,
            "wanted": request.contributions,
            "instances": request.task.instances,
            "spread": spread,
            "approvals": approvals.model_dump(),
            "closes_at": format_time(request.closes_at),
        }
    )


LIMITS: Final = {"/draws": 1 << 10}  # bytes of the body, by the path's end: it holds one nonce
_STATE: Final = having("job", "phase")
InstanceIndex = Annotated[int, Path(ge=0, lt=2**31)]


@dataclass(frozen=True)
class Crowds:
    """The parts of a trainer that serve crowd jobs, as the routes use them."""

    resources: Resources
    conductor: Conductor
    draws: Draws
    submissions: Submissions
    book: CrowdBook

    async def is_open(self) -> bool:
        """Tell whether a crowd job is open."""
        return bool(await self.resources.storage.run(open_crowds))


def crowd_routes(crowds: Crowds) -> APIRouter:
    """Return the routes below /v1/crowds."""
    router = APIRouter(prefix="/v1/crowds")
    own, book = crowds.resources, crowds.book
    storage, changes, jobs = own.storage, own.changes, schema.crowds.jobs.c

    async def state_of(job: str) -> bytes:
        crowd = await book.find(job)
        state, instances = await storage.run(store.state, crowd.number)
        holders = own.book.current.roster.in_force
        approvals = await storage.run(memberships.approvals, [job], holders=holders)
        return await asyncio.to_thread(
            _state_shown, crowd.request.body, state, instances, approvals[job]
        )

    @router.post(
        "",
        **stores(
            having("job"),
            takes=signed(CrowdJobRequest),
        ),
    )
    async def open_crowd(request: Request) -> Response:
        """Take a crowd job request that an analyst signed: 201, or 200 if it is known."""
        job, is_new = await crowds.conductor.open(await request.body())
        return taken({"job": job}, is_new=is_new)

    @router.post(
        "/list",
        **answers(
            listed_as("crowds", having("job", "phase")),
            takes={"anyOf": [signed(HolderQuery), signed(JobsQuery)]},
        ),
    )
    async def list_crowds(request: Request) -> Response:
        """List crowd jobs: for data holders the open ones, for analysts a page of the newest."""
        query = await own.query(await request.body(), HolderQuery, JobsQuery)
        if isinstance(query, HolderQuery):
            found = sorted(job for job, _ in await storage.run(open_crowds))
            return shown({"crowds": [{"job": job, "phase": CrowdPhase.OPEN} for job in found]})
        after, count = query.after, query.count
        newest = await storage.run(store.newest_crowds, after=after, count=count)
        listed = await asyncio.to_thread(lambda: [_listed(*each) for each in newest])
        still_open = [each["job"] for each in listed if each["phase"] == CrowdPhase.OPEN]
        holders = own.book.current.roster.in_force
        approvals = await storage.run(memberships.approvals, still_open, holders=holders)
        for each in listed:
            told = approvals.get(each["job"], Approvals(holders=holders))
            each["approvals"] = told.model_dump()
        following = after + count if len(newest) == count else None
        return shown({"crowds": listed, "next": following})

    @router.get("/list", include_in_schema=False)
    async def refuse_to_get() -> None:
        """Say that the method is wrong, not that there is no such job."""
        raise HTTPException(405)

    @router.get("/{job}", **answers(_STATE))
    async def show_crowd(job: JobId) -> Response:
        """Say where the crowd job stands: contributions, spread over instances, and until when."""
        return document(await state_of(job))

    @router.get("/{job}/request", **answers(signed(CrowdJobRequest)))
    async def show_request(job: JobId) -> Response:
        """Serve the request as its analyst signed it."""
        return document((await book.find(job)).request.encode())

    @router.get("/{job}/opening", **answers(signed(CrowdOpening)))
    async def show_opening(job: JobId) -> Response:
        """Serve the signed opening: the first instances, and the commitment to the seed."""
        crowd = await book.find(job)
        return document(await storage.run(store.find_document, crowd.number, jobs.opening))

    @router.post(
        "/{job}/draws",
        **answers(
            signed(Draw),
            takes=ANY,
        ),
    )
    async def draw(job: JobId, request: Request) -> Response:
        """Answer {"nonce": ...} by a signed draw."""
        return document(await crowds.draws.draw(job, parse_canonical_json(await request.body())))

    @router.post(
        "/{job}/submissions",
        **stores(
            signed(SubmissionReceipt),
            takes=signed(Submission),
        ),
    )
    async def submit(job: JobId, request: Request) -> Response:
        """Take a signed submission. The answer is the receipt: 201, or 200 if it was on file."""
        receipt, is_new = await crowds.submissions.take(job, await request.body())
        return document(receipt, 201 if is_new else 200)

    @router.get("/{job}/instances", **answers(having("instances")))
    async def show_instances(job: JobId) -> Response:
        """Show all instances as they are at one moment."""
        instances = await storage.run(store.snapshot, (await book.find(job)).number)
        revisions = [
            {"revision": each.revision, "weights": list(each.weights)} for each in instances
        ]
        contributions = sum(each.revision for each in instances)
        state = {"job": job, "contributions": contributions, "instances": revisions}
        return await asyncio.to_thread(shown, state)

    @router.get("/{job}/log/{instance}", **answers(having("entries")))
    async def show_log(
        job: JobId, instance: InstanceIndex, after: After = 0, count: Count = 1000
    ) -> Response:
        """List an instance's replacements from revision `after` on."""
        crowd = await book.find(job)
        if instance >= crowd.request.body.task.instances:
            raise UnknownInstance
        entries = await storage.run(
            store.log_page, job, crowd.number, instance, after=after, count=count
        )
        following = after + count if len(entries) == count else None
        return await asyncio.to_thread(
            lambda: shown(
                {"entries": [each.model_dump(mode="json") for each in entries], "next": following}
            )
        )

    @router.get("/{job}/closing", **answers(signed(CrowdClosing), pending=_STATE))
    async def show_closing(job: JobId, wait: WaitSeconds = 0) -> Response:
        """Serve the signed closing: the last instances, and the seed. 202 while it is open."""
        number = (await book.find(job)).number
        closing = await changes.until_found(
            job, lambda: storage.run(store.find_document, number, jobs.closing), wait
        )
        if closing is None:
            return document(await state_of(job), 202)
        return document(closing)

    @router.post(
        "/{job}/closing",
        **stores(
            signed(CrowdClosing),
            takes=signed(JobWithdrawal),
        ),
    )
    async def close_early(job: JobId, request: Request) -> Response:
        """Close a job as its analyst signed; serve the closing: 201, or 200 if it was closed."""
        closing, is_new = await crowds.conductor.close(job, await request.body())
        return document(closing, 201 if is_new else 200)

    return router
