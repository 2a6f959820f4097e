"""The HTTP routes of crowd jobs: bytes in, bytes out; they decide nothing."""

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request, Response

from shoal_hosting.paging import After
from shoal_hosting.problems import problem_document
from shoal_hosting.waiting import WaitSeconds
from shoal_protocol.encoding import canonical_json, parse_canonical_json
from shoal_protocol.errors import ProtocolError
from shoal_protocol.phases import CrowdPhase
from shoal_trainer.crowds.conducting import Conductor
from shoal_trainer.crowds.drawing import Draws
from shoal_trainer.crowds.records import CrowdRecords
from shoal_trainer.crowds.submitting import Answer, Submissions
from shoal_trainer.paths import JSON, IfNoneMatch, JobId, tag_of
from shoal_trainer.resources import CROWD_LIST, Resources

SUBMISSIONS_LIMIT_BYTES: Final = 32 << 20  # for 1,000 submissions of 512 weights
InstanceIndex = Annotated[int, Path(ge=0, lt=2**31)]
Count = Annotated[int, Query(ge=1, le=1000)]


@dataclass(frozen=True)
class Crowds:
    """The parts of a trainer that serve crowd jobs."""

    resources: Resources
    conductor: Conductor
    draws: Draws
    submissions: Submissions
    records: CrowdRecords


def crowd_routes(crowds: Crowds) -> APIRouter:
    """Return the routes below /v1/crowds."""
    router = APIRouter(prefix="/v1/crowds")
    records, changes = crowds.records, crowds.resources.changes

    @router.post("")
    async def open_crowd(request: Request, response: Response) -> dict[str, str]:
        """Take a crowd job request that an analyst signed: 201, or 200 if it is known."""
        job, is_new = await crowds.conductor.open(await request.body())
        response.status_code = 201 if is_new else 200
        return {"job": job}

    @router.get("")
    async def list_crowds(
        phase: CrowdPhase | None = None, wait: WaitSeconds = 0, if_none_match: IfNoneMatch = None
    ) -> Response:
        """List crowd jobs. With `wait`, hold the answer until there is one, or of another ETag."""

        async def look() -> bytes | None:
            found = await records.list_crowds(phase)
            listed = canonical_json({"crowds": found})
            if if_none_match is None:
                return listed if found else None
            return None if tag_of(listed) in if_none_match else listed

        listed = await changes.until_found(CROWD_LIST, look, wait)
        if listed is None and if_none_match is not None:
            return Response(status_code=304, headers={"ETag": if_none_match})
        listed = listed or canonical_json({"crowds": []})
        return Response(listed, media_type=JSON, headers={"ETag": tag_of(listed)})

    @router.get("/{job}")
    async def show_crowd(job: JobId) -> Response:
        """Say where the crowd job stands: contributions, spread over instances, and until when."""
        return Response(await records.state(job), media_type=JSON)

    @router.get("/{job}/request")
    async def show_request(job: JobId) -> Response:
        """Serve the request as its analyst signed it."""
        return Response(await records.request(job), media_type=JSON)

    @router.get("/{job}/opening")
    async def show_opening(job: JobId) -> Response:
        """Serve the signed opening: the first instances, and the commitment to the seed."""
        return Response(await records.opening(job), media_type=JSON)

    @router.post("/{job}/draws")
    async def draw(job: JobId, request: Request) -> Response:
        """Answer {"nonce": ...} by a signed draw, {"nonces": [...]} by {"documents": [...]}.

        The documents are those of the first nonces, at least of one, where too many are waiting.
        """
        drawn = await crowds.draws.draw(job, parse_canonical_json(await request.body()))
        if isinstance(drawn, list):
            drawn = b'{"documents":[' + b",".join(drawn) + b"]}"
        return Response(drawn, media_type=JSON)

    @router.post("/{job}/submissions")
    async def submit(job: JobId, request: Request) -> Response:
        """Take one signed submission, or {"documents": [...]}, in which each is judged by itself.

        The answer is the signed receipt: 201, or 200 if the submission was on file.
        """
        answers = await crowds.submissions.take(job, await request.body())
        if isinstance(answers, list):
            return Response(
                b'{"outcomes":[' + b",".join(map(_told, answers)) + b"]}", media_type=JSON
            )
        if isinstance(answers, ProtocolError):
            raise answers
        return Response(answers.receipt, 201 if answers.is_new else 200, media_type=JSON)

    @router.get("/{job}/instances")
    async def show_instances(job: JobId) -> Response:
        """Show all instances as they are at one moment."""
        return Response(await records.instances(job), media_type=JSON)

    @router.get("/{job}/log/{instance}")
    async def show_log(
        job: JobId, instance: InstanceIndex, after: After = 0, count: Count = 1000
    ) -> Response:
        """List an instance's replacements from revision `after` on."""
        page = await records.log(job, instance, after=after, count=count)
        return Response(page, media_type=JSON)

    @router.get("/{job}/closing")
    async def show_closing(job: JobId, wait: WaitSeconds = 0) -> Response:
        """Serve the signed closing: the last instances, and the seed. 202 while it is open."""
        closing = await changes.until_found(job, lambda: records.closing(job), wait)
        if closing is None:
            return Response(await records.state(job), 202, media_type=JSON)
        return Response(closing, media_type=JSON)

    @router.post("/{job}/closing")
    async def close_early(job: JobId, request: Request) -> Response:
        """Close a job as its analyst signed; serve the closing: 201, or 200 if it was closed."""
        closing, is_new = await crowds.conductor.close(job, await request.body())
        return Response(closing, 201 if is_new else 200, media_type=JSON)

    return router


def _told(answer: Answer) -> bytes:
    if isinstance(answer, ProtocolError):
        return canonical_json({"status": answer.status, "problem": problem_document(answer)})
    status = b"201" if answer.is_new else b"200"
    return b'{"receipt":' + answer.receipt + b',"status":' + status + b"}"
