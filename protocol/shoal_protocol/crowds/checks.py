"""Checks a crowd job against the consortium's policy, and a submission against its draw.

How far an honest submission can be from its draw is bounded. The bound is against mistakes and
spam. It proves no honesty: an enrolled client can lie within it as often as the job lets the client
contribute.
"""

import math
from datetime import datetime
from typing import Final

import numpy as np

from shoal_protocol.crowds.documents import CrowdJobRequest, Draw, Submission
from shoal_protocol.crowds.errors import RefusedSubmission
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.crowds.updates import decayed
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


HONEST_REFUSED: Final = 1e-12
"""Probability with which an honest submission is refused, at most.

So small that none is among all that come after a contribution: whether one is refused depends on
data, which what is proven of later noise leaves out of account.
"""


def largest_change(task: CrowdTask) -> int:
    """Return how far an honest step moves a touched coordinate, in lattice units.

    It moves further with probability `HONEST_REFUSED`.

    The clip, and t = scale ln(touched / probability) of noise: P(|X| > t) is at most exp(-t/scale)
    for a discrete Laplace X. Nobody may draw anew what this would refuse: the noise would not be
    Laplace any more.
    """
    tail = task.noise_scale * math.log(task.touched / HONEST_REFUSED)
    return task.lattice_clip + math.ceil(tail)


def check_submission(task: CrowdTask, draw: Draw, submission: Submission) -> None:
    """Refuse weights that are no step from the drawn ones; signatures and time are the caller's.

    Raises:
        RefusedSubmission: the detail says why, without a number of the client's.
    """
    if len(submission.weights) != task.dimension or len(draw.weights) != task.dimension:
        raise RefusedSubmission(f"the job's model has {task.dimension} weights")
    drawn = np.array(draw.weights, np.int64)
    sent = np.array(submission.weights, np.int64)
    if task.variant == "one" and np.count_nonzero(sent != drawn) > 1:
        raise RefusedSubmission("one contribution changes one weight")
    change = np.abs(sent - decayed(task, drawn))
    # an equal weight was not touched; the cut at the largest weight only shortens a change
    if np.any((change > largest_change(task)) & (sent != drawn)):
        raise RefusedSubmission("a weight is further from the drawn one than a step and its noise")
