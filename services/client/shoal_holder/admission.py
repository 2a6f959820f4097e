"""Judges a job or a round by what is signed, the owner's policy and the job's earlier rounds; pure.

`Jobs._join` and `Rounds._used` check whether slots have budget left for all jobs together.

A data holder trusts the manifest, its owner's policy and its own ledger. It accepts signed
documents of trainer and analyst only as far as these three allow.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

from shoal_holder.policy import Policy
from shoal_holder.release_timing import MOST_SECONDS, sampling_seconds
from shoal_protocol.jobs.job_request import JobRequest, check_job, check_round_of_job, job_refusal
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.rounds.round_spec import RoundSpec, check_spec
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.trust.policy import TimeLimits, passed_message
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import RefusedJob, RefusedSpec


class JobKind(NamedTuple):
    """How jobs of one kind are judged, each by a function of its request."""

    check: Callable[[Any, Manifest], None]  # raises `RefusedJob` if the consortium forbids it
    too_far: Callable[[Any, TimeLimits, datetime], str | None]
    refusal: Callable[[Policy, Any], str | None]
    columns: Callable[[Any], Iterable[str]]
    until: Callable[[Any], datetime]
    time: str  # what ends then


IN_ROUNDS: Final = JobKind(
    check=check_job,
    too_far=lambda request, limits, now: job_refusal(request, limits, now=now),
    refusal=lambda policy, request: policy.refusal(request) or model_refusal(request),
    columns=lambda request: request.terms.column_names,
    until=lambda request: request.join_deadline,
    time="the time to join",
)


def check_request(
    signed: Signed[Any],
    kind: JobKind,
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
    check_same_key(request.analyst, bound_to, current)
    for version in (bound_to, current):
        kind.check(request, version.manifest)
    if reason := kind.refusal(policy, request):
        raise RefusedJob(reason)
    check_columns(kind.columns(request), columns)
    if kind.until(request) <= now:
        raise RefusedJob(passed_message(kind.time, kind.until(request), now))
    for limits in (bound_to.manifest.policy, current.manifest.policy, policy):
        if reason := kind.too_far(request, limits, now):
            raise RefusedJob(reason)


def check_same_key(name: str, bound_to: Consortium, current: Consortium) -> None:
    """Refuse a job that a party signed with a key which the manifest in force no longer has.

    Raises:
        RefusedJob
    """
    if current.party(name).verify_key != bound_to.party(name).verify_key:
        raise RefusedJob(f"{name} has another key now: the job is to be submitted anew")


def model_refusal(request: JobRequest) -> str | None:
    """Return why an installed model of a job is not used here, or None if all are."""
    for _, query in request.terms.installed_models():  # the owner's policy names them
        from shoal_kit.installed_models import refusal

        if reason := refusal(query):
            return reason
    return None


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
