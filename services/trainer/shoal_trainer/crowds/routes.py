"""The HTTP routes of crowd jobs, and what they show, which names no client."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
from fastapi import APIRouter, HTTPException, Path, Request, Response

from shoal_hosting.server.openapi import (
    ANY,
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
    listed,
    outcome,
    shown,
    taken,
)
from shoal_hosting.server.waiting import WaitSeconds
from shoal_protocol.certificates.study_request import JobsQuery
from shoal_protocol.crowds.draws import (
    ConflictingSubmission,
    ContributionsUsedUp,
    CrowdClosed,
    CrowdClosing,
    CrowdClosingRequest,
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    LogEntry,
    RefusedDraw,
    RefusedSubmission,
    SessionExpired,
    Submission,
)
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.jobs.membership import HolderQuery
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.encoding import canonical_json, format_time, parse_canonical_json
from shoal_protocol.wire.errors import (
    MalformedDocument,
    ProtocolError,
    RefusedJob,
    RevokedHolder,
    UnknownHolder,
    UnknownJob,
)
from shoal_protocol.wire.phases import CrowdPhase
from shoal_protocol.wire.service_errors import BudgetExceeded, StaleQuery
from shoal_trainer import notices
from shoal_trainer.crowds import store
from shoal_trainer.crowds.conducting import Conductor
from shoal_trainer.crowds.drawing import MOST_NONCES, Draws, TooManyDraws
from shoal_trainer.crowds.store import CrowdBook, CrowdState, Instance, open_crowds
from shoal_trainer.crowds.submitting import Answer, Submissions
from shoal_trainer.job_views import check_query
from shoal_trainer.resources import Resources


class UnknownInstance(ProtocolError):
    """An instance that the job does not have."""

    code = "unknown-instance"
    title = "The crowd job has no such instance"
    status = 404
    remedy = "Instances are numbered from 0; the job's request says how many there are."


class CrowdJobViews:
    """Reads crowd jobs, their instances, logs and documents for the public routes."""

    def __init__(self, resources: Resources, book: CrowdBook) -> None:
        """Read from the storage of `resources`."""
        self._resources = resources
        self._storage = resources.storage
        self._book = book

    async def list_crowds(self, phase: CrowdPhase | None) -> list[dict[str, str]]:
        """Return all crowd jobs, or those in `phase`."""
        found = await self._storage.run(store.list_crowds, phase)
        return [{"job": job, "phase": phase_.value} for job, phase_ in found]

    async def newest(self, query: JobsQuery) -> dict[str, Any]:
        """Return the page of crowd jobs that an analyst asks for, and where the next one begins."""
        after, count = query.after, query.count
        found = await self._storage.run(store.newest_crowds, after=after, count=count)
        listed = await asyncio.to_thread(lambda: [_listed(*each) for each in found])
        still_open = [each["job"] for each in listed if each["phase"] == CrowdPhase.OPEN]
        counts = await self._storage.run(notices.counts, still_open)
        for each in listed:
            each["approvals"] = self._approvals(counts.get(each["job"], notices.NOBODY))
        return {
            "crowds": listed,
            "next": after + count if len(found) == count else None,
        }

    async def state(self, job: str) -> bytes:
        """Return where a crowd job stands, in JSON.

        `spread` is, for each weight, the variance over instances (divisor k - 1) in squared units
        of the weight; null with a single instance.

        Raises:
            UnknownJob
        """
        crowd = await self._book.find(job)
        found, instances = await self._storage.run(store.state, crowd.number)
        approvals = self._approvals(await self._storage.run(notices.count, job))
        return await asyncio.to_thread(
            _state_shown, crowd.request.body, found, instances, approvals
        )

    def _approvals(self, counted: dict[str, int]) -> dict[str, int]:
        return counted | {"holders": self._resources.book.current.roster.in_force}

    async def request(self, job: str) -> bytes:
        """Return the signed request.

        Raises:
            UnknownJob
        """
        return (await self._book.find(job)).request.encode()

    async def opening(self, job: str) -> bytes:
        """Return the signed opening.

        Raises:
            UnknownJob
        """
        crowd = await self._book.find(job)
        return await self._storage.run(store.find_opening, crowd.number)

    async def closing(self, job: str) -> bytes | None:
        """Return the signed closing, None while the job is open.

        Raises:
            UnknownJob
        """
        crowd = await self._book.find(job)
        return await self._storage.run(store.find_closing, crowd.number)

    async def instances(self, job: str) -> bytes:
        """Return all instances as they are at one moment, after how many contributions, in JSON.

        Raises:
            UnknownJob
        """
        crowd = await self._book.find(job)
        found = await self._storage.run(store.snapshot, crowd.number)
        return await asyncio.to_thread(_instances_shown, job, found)

    async def log(self, job: str, instance: int, *, after: int, count: int) -> bytes:
        """Return up to `count` log entries of an instance that follow revision `after`, in JSON.

        `next` is the last one's revision, None if there was no more than that.

        Raises:
            UnknownJob, UnknownInstance
        """
        crowd = await self._book.find(job)
        if instance >= crowd.request.body.task.instances:
            raise UnknownInstance
        page = store.log_page
        entries = await self._storage.run(
            page, job, crowd.number, instance, after=after, count=count
        )
        following = after + count if len(entries) == count else None
        return await asyncio.to_thread(_log_shown, entries, following)


def spread_of(task: CrowdTask, instances: Sequence[Instance]) -> list[float] | None:
    """Return the unbiased variance over k instances of each weight, in its squared units."""
    if len(instances) < 2:
        return None
    weights = np.array([each.weights for each in instances]) / task.grid
    return [float(each) for each in weights.var(axis=0, ddof=1)]


def _listed(encoded: bytes, phase: CrowdPhase, contributions: int) -> dict[str, Any]:
    request = decode(encoded, CrowdJobRequest).body
    return {
        "job": request.digest,
        "phase": phase.value,
        "analyst": request.analyst,
        "family": request.task.family,
        "epsilon": request.task.epsilon,
        "contributions": contributions,
        "wanted": request.contributions,
        "closes_at": format_time(request.closes_at),
    }


def _state_shown(
    request: CrowdJobRequest,
    state: CrowdState,
    instances: Sequence[Instance],
    approvals: dict[str, int],
) -> bytes:
    return canonical_json(
        {
            "job": request.digest,
            "phase": state.phase.value,
            "contributions": state.contributions,
            "contributors": state.contributors,
            "wanted": request.contributions,
            "instances": request.task.instances,
            "spread": spread_of(request.task, instances),
            "approvals": approvals,
            "closes_at": format_time(request.closes_at),
        }
    )


def _instances_shown(job: str, instances: Sequence[Instance]) -> bytes:
    return canonical_json(
        {
            "job": job,
            "contributions": sum(each.revision for each in instances),
            "instances": [
                {"revision": each.revision, "weights": list(each.weights)} for each in instances
            ],
        }
    )


def _log_shown(entries: Sequence[LogEntry], following: int | None) -> bytes:
    shown = [entry.model_dump(mode="json") for entry in entries]
    return canonical_json({"entries": shown, "next": following})


LIMITS: Final = {
    "/submissions": 32 << 20,  # 1,000 of 512 weights
    "/draws": MOST_NONCES * 80,
}
"""The largest bodies in bytes, by the ends of their paths."""
_STATE: Final = having("job", "phase")
InstanceIndex = Annotated[int, Path(ge=0, lt=2**31)]


@dataclass(frozen=True)
class Crowds:
    """The parts of a trainer that serve crowd jobs, as the routes use them."""

    resources: Resources
    conductor: Conductor
    draws: Draws
    submissions: Submissions
    views: CrowdJobViews

    async def is_open(self) -> bool:
        """Tell whether a crowd job is open."""
        return bool(await self.resources.storage.run(open_crowds))


def crowd_routes(crowds: Crowds) -> APIRouter:
    """Return the routes below /v1/crowds."""
    router = APIRouter(prefix="/v1/crowds")
    views, changes = crowds.views, crowds.resources.changes

    @router.post(
        "",
        **stores(
            having("job"),
            *SIGNED,
            RefusedJob,
            BudgetExceeded,
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
            *SIGNED,
            UnknownHolder,
            RevokedHolder,
            StaleQuery,
            takes={"anyOf": [signed(HolderQuery), signed(JobsQuery)]},
        ),
    )
    async def list_crowds(request: Request, phase: CrowdPhase | None = None) -> Response:
        """List crowd jobs: for data holders those in a phase, for analysts a page of the newest."""
        query = await check_query(crowds.resources, await request.body(), HolderQuery, JobsQuery)
        if isinstance(query, JobsQuery):
            return shown(await views.newest(query))
        return shown({"crowds": await views.list_crowds(phase)})

    @router.get("/list", include_in_schema=False)
    async def refuse_to_get() -> None:
        """Say that the method is wrong, not that there is no such job."""
        raise HTTPException(405)

    @router.get("/{job}", **answers(_STATE, UnknownJob))
    async def show_crowd(job: JobId) -> Response:
        """Say where the crowd job stands: contributions, spread over instances, and until when."""
        return document(await views.state(job))

    @router.get("/{job}/request", **answers(signed(CrowdJobRequest), UnknownJob))
    async def show_request(job: JobId) -> Response:
        """Serve the request as its analyst signed it."""
        return document(await views.request(job))

    @router.get("/{job}/opening", **answers(signed(CrowdOpening), UnknownJob))
    async def show_opening(job: JobId) -> Response:
        """Serve the signed opening: the first instances, and the commitment to the seed."""
        return document(await views.opening(job))

    @router.post(
        "/{job}/draws",
        **answers(
            one_or_several(signed(Draw)),
            UnknownJob,
            MalformedDocument,
            CrowdClosed,
            TooManyDraws,
            takes=ANY,
        ),
    )
    async def draw(job: JobId, request: Request) -> Response:
        """Answer {"nonce": ...} by a signed draw, {"nonces": [...]} by {"documents": [...]}.

        The documents are those of the first nonces, at least of one, where too many are waiting.
        """
        drawn = await crowds.draws.draw(job, parse_canonical_json(await request.body()))
        return listed(drawn) if isinstance(drawn, list) else document(drawn)

    @router.post(
        "/{job}/submissions",
        **stores(
            ANY,
            UnknownJob,
            *SIGNED,
            UnknownHolder,
            RevokedHolder,
            RefusedDraw,
            SessionExpired,
            RefusedSubmission,
            ConflictingSubmission,
            ContributionsUsedUp,
            CrowdClosed,
            takes=one_or_several(signed(Submission)),
        ),
    )
    async def submit(job: JobId, request: Request) -> Response:
        """Take one signed submission, or {"documents": [...]}, in which each is judged by itself.

        The answer is the signed receipt: 201, or 200 if the submission was on file.
        """
        answers = await crowds.submissions.take(job, await request.body())
        if isinstance(answers, list):
            return document(b'{"outcomes":[' + b",".join(map(_told, answers)) + b"]}")
        if isinstance(answers, ProtocolError):
            raise answers
        return document(answers.receipt, 201 if answers.is_new else 200)

    @router.get("/{job}/instances", **answers(having("instances"), UnknownJob))
    async def show_instances(job: JobId) -> Response:
        """Show all instances as they are at one moment."""
        return document(await views.instances(job))

    @router.get("/{job}/log/{instance}", **answers(having("entries"), UnknownJob, UnknownInstance))
    async def show_log(
        job: JobId, instance: InstanceIndex, after: After = 0, count: Count = 1000
    ) -> Response:
        """List an instance's replacements from revision `after` on."""
        return document(await views.log(job, instance, after=after, count=count))

    @router.get("/{job}/closing", **answers(signed(CrowdClosing), UnknownJob, pending=_STATE))
    async def show_closing(job: JobId, wait: WaitSeconds = 0) -> Response:
        """Serve the signed closing: the last instances, and the seed. 202 while it is open."""
        closing = await changes.until_found(job, lambda: views.closing(job), wait)
        if closing is None:
            return document(await views.state(job), 202)
        return document(closing)

    @router.post(
        "/{job}/closing",
        **stores(
            signed(CrowdClosing),
            UnknownJob,
            *SIGNED,
            takes=signed(CrowdClosingRequest),
        ),
    )
    async def close_early(job: JobId, request: Request) -> Response:
        """Close a job as its analyst signed; serve the closing: 201, or 200 if it was closed."""
        closing, is_new = await crowds.conductor.close(job, await request.body())
        return document(closing, 201 if is_new else 200)

    return router


def _told(answer: Answer) -> bytes:
    if isinstance(answer, ProtocolError):
        return canonical_json(outcome(answer))
    status = b"201" if answer.is_new else b"200"
    return b'{"receipt":' + answer.receipt + b',"status":' + status + b"}"
