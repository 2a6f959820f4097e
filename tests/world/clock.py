"""Time for all tests: it stands still until it is moved by hand."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from shoal_holder.site import Timer

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class HandMovedClock:
    """A clock that is moved by hand, and what each party's own clock makes of it."""

    now: datetime = NOW
    skew_seconds: dict[str, float] = field(default_factory=dict)
    """By how much a party's clock is ahead."""

    def __call__(self) -> datetime:
        return self.now

    def of(self, party: str) -> Callable[[], datetime]:
        """Return a party's own clock."""
        return lambda: self.now + timedelta(seconds=self.skew_seconds.get(party, 0.0))

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @contextmanager
    def of_timeouts(self) -> Iterator[None]:
        """Have the running event loop's timers go by this clock, too."""
        loop: Any = asyncio.get_running_loop()
        real_time = loop.time
        begin, began = real_time(), self.now
        loop.time = lambda: begin + (self.now - began).total_seconds()
        try:
            yield
        finally:
            loop.time = real_time


@dataclass
class HandMovedTimer(Timer):
    """A data holder's timer, by which drawing takes no time; `moments` are until when it waited."""

    moments: list[float] = field(default_factory=list)
    passed: float = 0.0

    def now(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds
        self.moments.append(self.passed)
