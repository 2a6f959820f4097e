"""Limits of jobs: their clients, and how far ahead they reach, lest budgets be reserved forever.

Pure: `now` is the reader's own clock, so the writer of a request cannot stretch its time.
"""

from datetime import datetime, timedelta
from typing import Final, Protocol

LARGEST_POPULATION: Final = 2**20
"""Most clients that one round may ask."""

JOIN_SECONDS: Final = 14 * 86_400
"""Default of the time to join that policies allow: people must be able to approve a job."""

JOB_SECONDS: Final = 90 * 86_400
"""Default of the time that policies allow a whole job."""

LONGEST_SECONDS: Final = 10 * 365 * 86_400  # of either that a policy may state
CLOCKS_APART: Final = timedelta(minutes=5)
"""What is forgiven, lest one party take and another refuse what keeps to a bound exactly."""

_OR_A_CLOCK: Final = "if that was not meant, the sender's clock or the one here is wrong"


class Limits(Protocol):
    """The time limits of a policy: the consortium's, or a data holder's."""

    @property
    def maximum_join_seconds(self) -> int:
        """From now until a job's population is fixed."""

    @property
    def maximum_job_seconds(self) -> int:
        """From now until a job is over, of either kind."""


def is_too_far(moment: datetime, seconds: int, now: datetime) -> bool:
    """Tell whether a moment is more than so many seconds ahead of `now`, by clocks that differ."""
    return moment - now > timedelta(seconds=seconds) + CLOCKS_APART


def too_far_ahead(name: str, moment: datetime, now: datetime, most: str) -> str:
    """Say that a moment is further ahead of `now` than something allows, and by how much."""
    return f"{name} is {between(now, moment)} ahead, more than {most}: {_OR_A_CLOCK}"


def passed(name: str, moment: datetime, now: datetime) -> str:
    """Say that a moment has passed `now`, and by how much."""
    return f"{name} has passed, {between(moment, now)} ago: {_OR_A_CLOCK}"


def between(earlier: datetime, later: datetime) -> str:
    """Say how much time lies between two moments, in days and h:mm:ss."""
    return f"{timedelta(seconds=round((later - earlier).total_seconds()))} (h:mm:ss)"
