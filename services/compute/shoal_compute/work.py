"""Work that goes on beside a node's steps, each piece by its name; it knows no piece's content."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, Final

import structlog

from shoal_compute.pace import Pace
from shoal_hosting.logs import describe_exception
from shoal_protocol.errors import StorageUnavailable

log = structlog.get_logger()

# How long a step waits for work that makes no progress, such as a peer that does not answer.
PATIENCE_SECONDS: Final = 0.25


class Work:
    """What is under way. A piece that failed is begun again, less and less often."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        """Begin with nothing under way."""
        self._clock = clock
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._paces: dict[str, Pace] = defaultdict(Pace)  # of pieces that failed

    def is_under_way(self, name: str) -> bool:
        """Tell whether this piece has not ended."""
        return name in self._under_way

    def begin(
        self, name: str, work: Callable[..., Coroutine[Any, Any, None]], *arguments: object
    ) -> None:
        """Begin a piece unless it is under way, or failed a moment ago."""
        if name not in self._under_way and self._paces[name].is_due(self._clock()):
            task = asyncio.get_running_loop().create_task(self._do(name, work, *arguments))
            self._under_way[name] = task
            task.add_done_callback(lambda _: self._under_way.pop(name, None))

    async def _do(
        self, name: str, work: Callable[..., Coroutine[Any, Any, None]], *arguments: object
    ) -> None:
        try:
            await work(*arguments)
        except StorageUnavailable:
            self._paces[name].failed(self._clock())
            log.warning("work waits for the store", work=name.split()[0])
        except Exception as error:  # noqa: BLE001 -- the other rounds go on; it is tried again
            self._paces[name].failed(self._clock())
            log.error("work failed", work=name.split()[0], **describe_exception(error))
        else:
            self._paces.pop(name, None)

    async def progress(self, wake: asyncio.Event) -> bool:
        """Wait until a piece ends or `wake` is set; False if neither comes in time."""
        if not self._under_way:
            return wake.is_set()
        news = asyncio.ensure_future(wake.wait())
        try:
            done, _ = await asyncio.wait(
                {*self._under_way.values(), news},
                timeout=PATIENCE_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            news.cancel()
        return bool(done)

    async def close(self) -> None:
        """End what is under way; what is not done is done after the next start."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
