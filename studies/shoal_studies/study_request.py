"""Job requests with their task decoded, from which trainer, analyst and replay derive terms again.

It also foresees, by what a data holder declared, whether its vault would refuse a job.
"""

from collections.abc import Collection
from datetime import datetime
from difflib import get_close_matches
from typing import Annotated, Literal

from pydantic import Field

from shoal_protocol.jobs.declarations import HolderDeclaration
from shoal_protocol.jobs.job_request import JobRequest, check_job, job_refusal
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.wire.documents import (
    AnalystDocument,
)
from shoal_protocol.wire.encoding import Timestamp
from shoal_studies.catalogue.study import check_terms_of_task
from shoal_studies.registry import Task


class StudyRequest(JobRequest):
    """The document of a job request with its task decoded; data holders do not decode the task."""

    task: Task


class JobCheck(AnalystDocument):
    """Analyst -> trainer: would this job be taken? Of another kind, so that it is no job itself."""

    kind: Literal["job_check"] = "job_check"
    request: StudyRequest


Position = Annotated[int, Field(ge=0, lt=2**31)]
"""How many entries of a list come before a page."""


class JobsQuery(AnalystDocument):
    """Analyst -> trainer: which jobs are there, and what is left? Or who declared what?

    Valid for minutes. The answer has `count` jobs, the newest first, without the `after` newest; or
    so many data holders' declarations, from the holder of index `after` on.
    """

    kind: Literal["jobs_query"] = "jobs_query"
    at: Timestamp
    after: Position = 0
    count: int = Field(default=100, ge=1, le=1000)


def check_study(request: StudyRequest, manifest: Manifest) -> None:
    """Refuse a job as `check_job` does, or one whose terms are not those of its task.

    Raises:
        RefusedJob: the detail says what to change.
    """
    check_job(request, manifest)
    check_terms_of_task(
        request.terms,
        request.task,
        least=request.minimum_population,
        most=request.maximum_population,
    )


def foreseen_refusal(
    request: StudyRequest,
    declared: HolderDeclaration,
    *,
    variables: Collection[str],
    now: datetime,
) -> str | None:
    """Return why a data holder would refuse a job, or None if its declaration allows the job.

    `variables` are those that any data holder declares: names for what is misspelt.
    """
    if declared.without_owners:
        return "its policy lists no owner who could approve the job: ask it to list them"
    for name in request.terms.column_names:
        if name not in declared.variables:
            near = [] if name in variables else get_close_matches(name, sorted(variables))
            which = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            return f"it declares no variable {name!r}{which}"
    return declared.rules.refusal(request) or job_refusal(request, declared.rules, now=now)
