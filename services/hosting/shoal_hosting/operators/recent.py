"""Keeps in memory what happened lately: log lines, and how much of something a second."""

import io
import json
from collections import deque
from datetime import datetime
from typing import Any, Final, TextIO

from shoal_hosting.clock import Clock

LINES: Final = 200
SPELL_SECONDS: Final = 10
SPELLS: Final = 60


class RecentLines(io.TextIOBase):
    """A stream for the log that also keeps its last lines, which withhold what is private."""

    def __init__(self, stream: TextIO) -> None:
        """Hand everything on to `stream`."""
        self._stream = stream
        self._kept: deque[str] = deque(maxlen=LINES)

    def write(self, text: str) -> int:
        """Write a line."""
        if line := text.strip():
            self._kept.append(line)
        return self._stream.write(text)

    def flush(self) -> None:
        """Let the stream write what it holds back."""
        self._stream.flush()

    def events(self) -> list[dict[str, Any]]:
        """Return the events of the kept lines, the newest first."""
        return [json.loads(line) for line in reversed(self._kept)]


class Rate:
    """Counts what happens, in each of the last spells of ten seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: deque[tuple[int, int]] = deque(maxlen=SPELLS + 1)  # spells that had any

    def count(self, much: int) -> None:
        """Note that this much happened now."""
        spell = _spell(self._clock())
        before = self._counts.pop() if self._counts and self._counts[-1][0] == spell else (spell, 0)
        self._counts.append((spell, before[1] + much))

    def per_second(self) -> list[float]:
        """Return how much happened a second in each spell that is over, the newest last."""
        now, counts = _spell(self._clock()), dict(self._counts)
        return [counts.get(each, 0) / SPELL_SECONDS for each in range(now - SPELLS, now)]


def _spell(moment: datetime) -> int:
    return int(moment.timestamp()) // SPELL_SECONDS
