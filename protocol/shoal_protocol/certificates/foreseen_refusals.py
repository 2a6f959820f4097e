"""Foresees, by what a data holder declared, whether its vault would refuse a job."""

from collections.abc import Collection
from datetime import datetime
from difflib import get_close_matches

from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.jobs.declarations import HolderDeclaration
from shoal_protocol.jobs.job_request import job_refusal


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
