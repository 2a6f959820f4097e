"""Whether a job or a round is one to take part in; pure, and the last word before spending.

A client trusts the manifest, its owner's policy and its own ledger; of what the trainer and the
analyst say it believes what they signed, and only as far as these three allow.
"""

from collections.abc import Iterable
from datetime import datetime

from shoal_client.departure import MOST_SECONDS, sampling_seconds
from shoal_client.policy import Policy
from shoal_protocol import reach
from shoal_protocol.accounting import Cost
from shoal_protocol.documents import Signed
from shoal_protocol.draw_and_discard.admission import check_crowd_job
from shoal_protocol.draw_and_discard.documents import CrowdJobRequest, CrowdOpening
from shoal_protocol.draw_and_discard.draws import check_beginning, check_opening
from shoal_protocol.errors import RefusedJob, RefusedSpec
from shoal_protocol.jobs import JobRequest, check_job, check_round_of_job
from shoal_protocol.manifest import Consortium
from shoal_protocol.rounds import RoundSpec, check_spec


def check_request(
    signed: Signed[JobRequest],
    *,
    job: str,
    consortium: Consortium,
    policy: Policy,
    columns: tuple[str, ...],
    now: datetime,
) -> None:
    """Refuse a job that is not the one asked for, or that the consortium or the owner forbids.

    `columns` are those of the records at hand.

    Raises:
        RefusedJob: the detail says why.
        ProtocolError: the request is bound to another manifest, or not signed by an analyst.
    """
    request = signed.body
    if signed.digest != job or signed.signer != request.analyst:
        raise RefusedJob("the request is not the job's, or not by the analyst that it names")
    consortium.verify(signed)
    check_job(request, consortium.manifest)
    if reason := policy.refusal(request):
        raise RefusedJob(reason)
    check_columns((bounds.name for bounds in request.task.columns), columns)
    if request.join_deadline <= now:
        raise RefusedJob("the time to join has passed")
    for limits in (consortium.manifest.policy, policy):
        if reason := reach.job_refusal(request, limits, now=now):
            raise RefusedJob(reason)


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
    """Refuse a crowd job as `check_request` does a job, or an opening that is not its own.

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
        if reason := reach.crowd_refusal(request, limits, now=now):
            raise RefusedJob(reason)
    for name in (request.analyst, opening.signer):
        if bound_to.party(name).verify_key != current.party(name).verify_key:
            raise RefusedJob("the manifest in force has another key of who signed it")
    if reason := policy.crowd_refusal(request):
        raise RefusedJob(reason)
    check_columns(request.task.column_names, columns)
    if request.closes_at <= now:
        raise RefusedJob("the time to contribute has passed")
    bound_to.verify(opening)
    check_opening(opening.body, request)
    check_beginning(opening.body, request)


def check_columns(needed: Iterable[str], columns: Iterable[str]) -> None:
    """Refuse a job that needs a column which the records do not have.

    Raises:
        RefusedJob: the detail names it.
    """
    if missing := sorted(set(needed) - set(columns)):
        raise RefusedJob(f"the records have no column {missing[0]!r}")


def check_round(
    signed: Signed[RoundSpec],
    *,
    request: JobRequest,
    number: int,
    consortium: Consortium,
    policy: Policy,
    spent: Cost,
    now: datetime,
) -> None:
    """Refuse a round that asks for anything but what the joined job promised.

    `number` is the first that is new here, and `spent` the most that the job's earlier rounds cost
    one of the clients here whom it asks. A deadline that has passed is a refusal too.

    Raises:
        RefusedSpec: the detail says why.
        ProtocolError: the spec is bound to another manifest, or not signed by the trainer.
    """
    spec = signed.body
    consortium.verify(signed)
    if reason := policy.refusal(request) or policy.query_refusal(spec.query):
        raise RefusedSpec(reason)
    if spec.number < number:
        raise RefusedSpec("the spec is for another job or round")
    check_spec(spec, consortium, now=now)
    check_round_of_job(spec, request, spent=spent, earlier=None)
    if sampling_seconds(spec.noise_blocks(), 1) > MOST_SECONDS:
        raise RefusedSpec("drawing one client's noise would take too long")
