"""Checks a crowd job against the consortium's policy, not against an owner's."""

from datetime import datetime

from shoal_protocol.crowds.documents import CrowdJobRequest
from shoal_protocol.trust.limits import Limits, is_too_far, too_far_message
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.wire.errors import RefusedJob


def check_crowd_job(request: CrowdJobRequest, manifest: Manifest) -> None:
    """Refuse a crowd job that the consortium's policy does not allow.

    Raises:
        RefusedJob: the detail says what to change.
    """
    allowed = manifest.policy.maximum_local_epsilon
    if allowed is None:
        raise RefusedJob(
            "the consortium's manifest allows no crowd jobs: its policy has no "
            "maximum_local_epsilon"
        )
    if request.client_epsilon > allowed * (1.0 + 1e-12):
        raise RefusedJob(
            f"epsilon {request.client_epsilon:g} of all that one client may contribute exceeds "
            f"what the policy allows one crowd job: {allowed:g}"
        )


def reach_refusal(request: CrowdJobRequest, limits: Limits, *, now: datetime) -> str | None:
    """Return why a crowd job reaches too far ahead of `now`, or None."""
    if is_too_far(request.closes_at, limits.maximum_job_seconds, now):
        most = f"the policy's maximum_job_seconds, {limits.maximum_job_seconds}"
        return too_far_message("closes_at", request.closes_at, now, most)
    return None
