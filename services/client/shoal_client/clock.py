"""The clock of this machine, for callers that bring none: the library reads it only here."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)  # noqa: TID251 -- the shell's edge; everything inside takes a clock


class Timer(Protocol):
    """Measures time that has passed, and waits."""

    def now(self) -> float:
        """Return seconds since some moment."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class LoopTimer:
    """The timer of the event loop that runs."""

    def now(self) -> float:
        """Return seconds since some moment."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
