"""When to try again what failed."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass
class Pace:
    """Exponential back-off: doubles the pause after each failure, up to `longest`."""

    first: timedelta = timedelta(milliseconds=100)
    longest: timedelta = timedelta(seconds=5)
    failures: int = 0
    pause: timedelta = timedelta(0)
    next_at: datetime | None = None

    def left(self, now: datetime) -> timedelta:
        """Return how long to wait; not at all after the clock was set back beyond the pause."""
        left = timedelta(0) if self.next_at is None else self.next_at - now
        return left if timedelta(0) < left <= self.pause else timedelta(0)

    def is_due(self, now: datetime) -> bool:
        """Tell whether it is time to try."""
        return not self.left(now)

    def failed(
        self, now: datetime, *, at_least: timedelta = timedelta(0), stretch: float = 1.0
    ) -> None:
        """Wait twice as long as after the failure before, or longer, `stretch` times as long."""
        doubled = min(self.first * 2 ** min(self.failures, 10), self.longest)
        self.pause = stretch * max(doubled, at_least)
        self.next_at = now + self.pause
        self.failures += 1
