"""Checks a crowd job against the consortium's policy, not against an owner's."""

from shoal_protocol.crowds.documents import CrowdJobRequest
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
