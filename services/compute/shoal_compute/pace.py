"""How often to try what may fail: at once, then ever more rarely; it reads no clock."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

_FIRST: Final = timedelta(milliseconds=100)
_LARGEST: Final = timedelta(seconds=5)


@dataclass
class Pace:
    """Exponential back-off from a tenth of a second to five seconds."""

    failures: int = 0
    next_at: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        """Tell whether it is time to try."""
        return self.next_at is None or now >= self.next_at

    def failed(self, now: datetime) -> None:
        """Wait twice as long as after the failure before."""
        self.next_at = now + min(_FIRST * 2 ** min(self.failures, 10), _LARGEST)
        self.failures += 1

    def succeeded(self) -> None:
        """Wait no more."""
        self.failures = 0
        self.next_at = None
