"""Limits to how many clients a round has and to how far ahead a job reaches, and what refusals say.

Pure: `now` is the reader's own clock, so that whoever writes a request cannot gain time.
"""

from datetime import datetime, timedelta
from typing import Final, Protocol

LARGEST_POPULATION: Final = 2**20
"""Most clients that a round, and a job in rounds, can have."""

JOIN_SECONDS: Final = 14 * 86_400
"""Default of the time to join that policies allow: people must be able to approve a job."""

JOB_SECONDS: Final = 90 * 86_400
"""Default of the time that policies allow a whole job."""

LONGEST_SECONDS: Final = 10 * 365 * 86_400
"""The most that a policy may allow of either."""

CLOCKS_APART: Final = timedelta(minutes=5)
"""How far two parties' clocks may differ: without it one party could take a request that keeps
exactly to a limit, and another refuse it."""

_WHOSE_CLOCK: Final = "if that was not meant, the sender's clock or the one here is wrong"


class Limits(Protocol):
    """The time limits of a policy: the consortium's, or a data holder's."""

    @property
    def maximum_join_seconds(self) -> int:
        """From now until a job's population is fixed."""

    @property
    def maximum_job_seconds(self) -> int:
        """From now until a job is over, whether it has rounds or not."""


def is_too_far(moment: datetime, seconds: int, now: datetime) -> bool:
    """Tell whether `moment` is more than `seconds` after `now`, allowing for clocks that differ."""
    return moment - now > timedelta(seconds=seconds) + CLOCKS_APART


def too_far_message(name: str, moment: datetime, now: datetime, limit: str) -> str:
    """Say that `moment` is further after `now` than `limit` allows, and by how much."""
    return f"{name} is {duration(now, moment)} ahead, more than {limit}: {_WHOSE_CLOCK}"


def passed_message(name: str, moment: datetime, now: datetime) -> str:
    """Say that `moment` lies before `now`, and by how much."""
    return f"{name} has passed, {duration(moment, now)} ago: {_WHOSE_CLOCK}"


def duration(earlier: datetime, later: datetime) -> str:
    """Return the time between two moments as text, in days, hours, minutes and seconds."""
    return f"{timedelta(seconds=round((later - earlier).total_seconds()))} (h:mm:ss)"
