"""Schedules clients' contributions to a crowd job at random moments, independent of their data.

Pure: it reads no clock. A client's moments are uniform over the time that is left, so a data holder
may draw them anew after a restart.
"""

import heapq
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from shoal_protocol.sharing.shares import RandomBytes

LAST_MOMENTS: Final = 0.1
"""The last part of the time, in which no contribution begins, so that all arrive in time."""

_FRACTION: Final = 2.0**53


class Schedule:
    """The next moment of each client that has contributions left."""

    def __init__(
        self, left: Mapping[int, int], *, now: datetime, end: datetime, random_bytes: RandomBytes
    ) -> None:
        """Spread as many contributions as each client has `left` over the time until `end`."""
        self._random_bytes = random_bytes
        self._latest = end - LAST_MOMENTS * max(end - now, timedelta(0))
        self._moments: list[tuple[datetime, int]] = []  # a heap: of each client its next
        self._left = dict(left)
        for client in self._left:
            self._plan(client, now)

    def due(self, now: datetime, *, most: int) -> list[int]:
        """Return up to `most` clients whose moment has come; each has one contribution less."""
        clients: list[int] = []
        while self._moments and self._moments[0][0] <= now and len(clients) < most:
            _, client = heapq.heappop(self._moments)
            self._left[client] -= 1
            clients.append(client)
        for client in clients:
            self._plan(client, now)
        return clients

    @property
    def next_moment(self) -> datetime | None:
        """When a contribution is due next, None if none is left."""
        return self._moments[0][0] if self._moments else None

    def _plan(self, client: int, now: datetime) -> None:
        """Draw the first of so many uniform moments as are left: 1 - U^(1/n) of the time."""
        left = self._left[client]
        if left < 1:
            return
        seconds = max(0.0, (self._latest - now).total_seconds())
        word = int.from_bytes(self._random_bytes(8), "little") >> 11
        uniform = (word + 0.5) / _FRACTION
        wait = -math.expm1(math.log(uniform) / left) * seconds
        heapq.heappush(self._moments, (now + timedelta(seconds=wait), client))
