"""The machine's clock, for callers that pass none; the library reads it only here."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)  # noqa: TID251 -- the shell's edge; everything inside takes a clock
