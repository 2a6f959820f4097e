"""Runs work beside requests: calls functions in threads, and retries failed tasks with back-off."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from shoal_kit.clock import Clock
from shoal_kit.pace import Pace
from shoal_kit.peers.exchange import Unavailable
from shoal_kit.web.logs import describe_exception
from shoal_protocol.wire.service_errors import StorageUnavailable

log = structlog.get_logger()
Answer = TypeVar("Answer")


SMALL_BYTES: Final = 16 << 10


class Worker:
    """Calls functions in threads of its own."""

    def __init__(self, name: str, *, threads: int = 1) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return what `work(*arguments)` returns."""
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, partial(work, *arguments)
        )

    async def run_sized(
        self, size_bytes: int, work: Callable[..., Answer], *arguments: object
    ) -> Answer:
        """Do what `run` does, with work that takes as long as documents of this size do.

        What is small is done here: handing it over would take longer.
        """
        if size_bytes <= SMALL_BYTES:
            return work(*arguments)
        return await self.run(work, *arguments)

    def close(self) -> None:
        """Wait for the work that was begun, and let go of the threads."""
        self._executor.shutdown()


class Work:
    """Background tasks by name; a task that failed is retried with back-off."""

    def __init__(self, clock: Clock, pace: Callable[[], Pace] = Pace) -> None:
        """Begin with no tasks; `pace` makes the back-off of each task that fails."""
        self._clock = clock
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._paces: dict[str, Pace] = defaultdict(pace)  # of pieces that failed

    def is_under_way(self, name: str) -> bool:
        """Tell whether this piece has not ended."""
        return name in self._under_way

    def begin(
        self, name: str, work: Callable[..., Coroutine[Any, Any, None]], *arguments: object
    ) -> asyncio.Task[None] | None:
        """Begin a piece unless it is under way, or failed a moment ago."""
        if name in self._under_way or not self._paces[name].is_due(self._clock()):
            return None
        task = asyncio.get_running_loop().create_task(self._do(name, work, *arguments))
        self._under_way[name] = task
        task.add_done_callback(lambda _: self._under_way.pop(name, None))
        return task

    async def _do(
        self, name: str, work: Callable[..., Coroutine[Any, Any, None]], *arguments: object
    ) -> None:
        try:
            await work(*arguments)
        except StorageUnavailable:
            log.warning("work waits for the store", work=name)
        except Unavailable:
            log.debug("work waits for a party", work=name)
        except Exception as error:  # noqa: BLE001 -- the other pieces go on; it is tried again
            log.error("work failed", work=name, **describe_exception(error))
        else:
            self._paces.pop(name, None)
            return
        self._paces[name].failed(self._clock())

    async def progress(self, wake: asyncio.Event, *, patience_seconds: float) -> bool:
        """Wait until a piece ends or `wake` is set; False if neither comes in time."""
        if not self._under_way:
            return wake.is_set()
        news = asyncio.ensure_future(wake.wait())
        try:
            done, _ = await asyncio.wait(
                {*self._under_way.values(), news},
                timeout=patience_seconds,
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
