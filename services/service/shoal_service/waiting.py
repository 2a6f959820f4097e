"""Long polls: a request waits until its key has changed."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeVar
from weakref import WeakValueDictionary

from fastapi import Query

LONGEST_WAIT_SECONDS: Final = 30

WaitSeconds = Annotated[float, Query(ge=0, le=LONGEST_WAIT_SECONDS, allow_inf_nan=False)]
"""The query parameter `wait` of a long poll."""

Found = TypeVar("Found")


class Changes:
    """Tells those who wait on a key that it changed. For one event loop."""

    def __init__(self) -> None:
        """Begin without waiting requests."""
        # an entry lives as long as somebody waits on it
        self._events: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        self._closed = False

    def tell(self, key: str) -> None:
        """Wake everyone who waits on `key`."""
        event = self._events.pop(key, None)
        if event is not None:
            event.set()

    def close(self) -> None:
        """Wake all waiting requests, and let none wait from now on: the service stops."""
        self._closed = True
        for key in list(self._events):
            self.tell(key)

    async def until_found(
        self, key: str, look: Callable[[], Awaitable[Found | None]], wait_seconds: float
    ) -> Found | None:
        """Return what `look` finds, at the latest after `wait_seconds`; it looks on each change.

        With `wait_seconds` 0 it looks once.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_seconds
        while True:
            # taken before looking, so that no change falls between the look and the wait
            event = self._events.setdefault(key, asyncio.Event())
            found = await look()
            if found is not None or self._closed or loop.time() >= until:
                return found
            try:
                async with asyncio.timeout_at(until):
                    await event.wait()
            except TimeoutError:
                return None
