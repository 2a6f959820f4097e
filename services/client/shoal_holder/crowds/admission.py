"""Judges a crowd job and its opening by the manifest and the owner's policy."""

from datetime import datetime

from shoal_holder.admission import check_columns
from shoal_holder.crowds.records_used import record_cap
from shoal_holder.crowds.status import NO_CROWDS
from shoal_holder.policy import Policy
from shoal_protocol.crowds.draws import (
    CrowdJobRequest,
    CrowdOpening,
    check_beginning,
    check_crowd_job,
    check_opening,
    reach_refusal,
)
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.policy import passed_message
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import RefusedJob


def crowd_refusal(policy: Policy, request: CrowdJobRequest) -> str | None:
    """Return why `policy` lets no record here into a crowd job, or None if some may be in it."""
    task = request.task
    if policy.maximum_local_epsilon is None:
        return NO_CROWDS
    if request.analyst not in policy.analysts:
        return "the analyst is not among those that this data holder allows"
    if task.family not in policy.crowd_families:
        return "this data holder does not allow the model: see `crowd_families` in its policy"
    if reason := policy.columns_refusal((*task.features, task.target)):
        return reason
    one = Cost.pure(task.contribution_epsilon)
    if not record_cap(policy).allows(one):
        return (
            f"epsilon {task.contribution_epsilon:g} of one contribution exceeds what this data "
            f"holder allows one record: {policy.maximum_local_epsilon:g}"
        )
    if not policy.cap.allows(one):
        return (
            f"epsilon {task.contribution_epsilon:g} of one contribution exceeds what this data "
            f"holder allows one client: {policy.cap}"
        )
    return None


def check_crowd(
    signed: Signed[CrowdJobRequest],
    opening: Signed[CrowdOpening],
    *,
    job: str,
    bound_to: Consortium,
    current: Consortium,
    policy: Policy,
    columns: tuple[str, ...],
    now: datetime,
) -> None:
    """Refuse a crowd job that the consortium or the owner forbids, or an opening not its own.

    A crowd job may be open for weeks, in which others are enrolled: it is judged by the manifest
    version that it is bound to, and by the one in force.

    Raises:
        RefusedJob: the detail says why.
        ProtocolError: a document is bound to another manifest, or not signed by its author.
    """
    request = signed.body
    if signed.digest != job:
        raise RefusedJob("the request is not the job's")
    bound_to.verify(signed)
    for version in (bound_to, current):
        check_crowd_job(request, version.manifest)
    for limits in (bound_to.manifest.policy, current.manifest.policy, policy):
        if reason := reach_refusal(request, limits, now=now):
            raise RefusedJob(reason)
    for name in (request.analyst, opening.signer):
        if bound_to.party(name).verify_key != current.party(name).verify_key:
            raise RefusedJob("the manifest in force has another key of who signed it")
    if reason := crowd_refusal(policy, request):
        raise RefusedJob(reason)
    check_columns(request.task.column_names, columns)
    if request.closes_at <= now:
        raise RefusedJob(passed_message("the time to contribute", request.closes_at, now))
    bound_to.verify(opening)
    check_opening(opening.body, request)
    check_beginning(opening.body, request)
