"""The trainer's checks of what clients submit to a crowd job, and its refusals.

How far an honest submission can be from its draw is bounded. The bound is against mistakes and
spam. It proves no honesty: an enrolled client can lie within it as often as the job lets the client
contribute.
"""

import math
from typing import Final

import numpy as np

from shoal_protocol.crowds.draws import Draw, Submission
from shoal_protocol.crowds.tasks import CrowdTask, decayed
from shoal_protocol.wire.errors import ProtocolError


class SessionExpired(ProtocolError):
    title = "The draw has expired"
    status = 410
    remedy = "Draw again, if the client's budget allows another contribution."


class RefusedSubmission(ProtocolError):
    title = "The submission is refused"
    status = 422
    remedy = "Answer a draw of this job by one step, as the specification says."


class ContributionsUsedUp(ProtocolError):
    title = "The client has contributed as often as the job allows"
    status = 403
    remedy = "Contribute no more to this job."


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
