"""Decides whether to take part in a job or a round: the last check before spending; pure.

A data holder trusts the manifest, its owner's policy and its own ledger. It accepts signed
documents of trainer and analyst only as far as these three allow.
"""

from collections.abc import Iterable
from datetime import datetime

from shoal_holder.policy import Policy
from shoal_holder.release_timing import MOST_SECONDS, sampling_seconds
from shoal_protocol.jobs.job_request import JobRequest, check_job, check_round_of_job, job_refusal
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.rounds.round_spec import RoundSpec, check_spec
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.policy import passed_message
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import RefusedJob, RefusedSpec


def check_request(
    signed: Signed[JobRequest],
    *,
    job: str,
    bound_to: Consortium,
    current: Consortium,
    policy: Policy,
    columns: tuple[str, ...],
    now: datetime,
) -> None:
    """Refuse a job that is not the one asked for, or that the consortium or the owner forbids.

    While owners think, versions of the manifest come and go: a job is judged by the one that it is
    bound to, and by the one in force. `columns` are those of the records at hand.

    Raises:
        RefusedJob: the detail says why.
        ProtocolError: the request is not signed by an analyst whom both versions list.
    """
    request = signed.body
    if signed.digest != job or signed.signer != request.analyst:
        raise RefusedJob("the request is not the job's, or not by the analyst that it names")
    bound_to.verify(signed)
    if current.party(request.analyst) != bound_to.party(request.analyst):
        raise RefusedJob("the analyst has another key now: the job is to be submitted anew")
    for version in (bound_to, current):
        check_job(request, version.manifest)
    if reason := policy.refusal(request):
        raise RefusedJob(reason)
    check_columns(request.terms.column_names, columns)
    if request.join_deadline <= now:
        raise RefusedJob(passed_message("the time to join", request.join_deadline, now))
    for limits in (bound_to.manifest.policy, current.manifest.policy, policy):
        if reason := job_refusal(request, limits, now=now):
            raise RefusedJob(reason)


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
    slots: int,
    now: datetime,
) -> None:
    """Refuse a round that asks for anything but what the joined job promised.

    `number` is the first that is new here, `slots` how many it asks here, and `spent` the most that
    the job's earlier rounds cost one of these. A deadline that has passed is a refusal too.

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
    check_round_of_job(spec, request, spent=spent)
    try:
        blocks = [(coordinates, part.of(slots)) for coordinates, part in spec.noise_blocks()]
    except ValueError as error:
        raise RefusedSpec(str(error)) from error
    if sampling_seconds(blocks) > MOST_SECONDS:
        raise RefusedSpec("drawing the answer's noise would take too long")
