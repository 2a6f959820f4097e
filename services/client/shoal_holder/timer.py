"""Measures time that has passed, and waits."""

import time
from typing import Protocol


class Timer(Protocol):
    """Measures time that has passed, and waits."""

    def now(self) -> float:
        """Return seconds since some moment."""

    def sleep(self, seconds: float) -> None:
        """Wait; not at all if it is no time."""


class SystemTimer:
    """The timer of this machine, which no correction of its clock moves."""

    def now(self) -> float:
        """Return seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait; not at all if it is no time."""
        time.sleep(max(0.0, seconds))
