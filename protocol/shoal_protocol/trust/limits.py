"""Limits how far ahead a job may reach, so that no budget is reserved without end.

Pure: `now` is the reader's own clock, so the writer of a request cannot stretch its time.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from shoal_protocol.jobs.job_request import JobRequest

JOIN_SECONDS: Final = 14 * 86_400
"""Default of the time to join that policies allow: people must be able to approve a job."""

JOB_SECONDS: Final = 90 * 86_400
"""Default of the time that policies allow a whole job."""

LONGEST_SECONDS: Final = 10 * 365 * 86_400  # of either that a policy may state
CLOCKS_APART: Final = timedelta(minutes=5)
"""What is forgiven, lest one party take and another refuse what keeps to a bound exactly."""


class Limits(Protocol):
    """The time limits of a policy: the consortium's, or a data holder's."""

    @property
    def maximum_join_seconds(self) -> int:
        """From now until a job's population is fixed."""

    @property
    def maximum_job_seconds(self) -> int:
        """From now until a job is over, of either kind."""


def job_refusal(request: "JobRequest", limits: Limits, *, now: datetime) -> str | None:
    """Return why a job in rounds reaches too far ahead of `now`, or None."""
    if is_too_far(request.join_deadline, limits.maximum_join_seconds, now):
        most = limits.maximum_join_seconds
        return f"join_deadline is further ahead than the policy's maximum_join_seconds, {most}"
    if is_too_far(request.ends_by, limits.maximum_job_seconds, now):
        most = limits.maximum_job_seconds
        return f"the job may last longer than the policy's maximum_job_seconds, {most}"
    return None


def is_too_far(moment: datetime, seconds: int, now: datetime) -> bool:
    """Tell whether a moment is more than so many seconds ahead of `now`, by clocks that differ."""
    return moment - now > timedelta(seconds=seconds) + CLOCKS_APART
