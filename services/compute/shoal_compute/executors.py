"""Runs sums in a thread here, in other processes, or on a Dask cluster.

If a process or the cluster fails, the sum is computed here, with the same result.
"""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from typing import Any, Final

import structlog

from shoal_hosting.server.logs import describe_exception
from shoal_hosting.startup import StartupRefused
from shoal_hosting.work import Answer, Worker

_MOST_PROCESSES: Final = 4
_CLUSTER_AT_ONCE: Final = 8
_STARTING_SECONDS: Final = 60.0  # of a batch, the start of its process included
_CLUSTER_SECONDS: Final = 10.0  # of a batch, which takes a hundredth of a second
_PAUSE_SECONDS: Final = 30.0  # after a failure

log = structlog.get_logger()
Opened = tuple[Executor, Callable[[], None]]
"""An executor, and what lets go of it."""


class Summing(Worker):
    """Runs work in one thread of this process, or in a given executor."""

    at_once = 1

    def __init__(self, executor: Executor | None = None) -> None:
        super().__init__("summing", executor=executor)


class Elsewhere(Summing):
    """Runs work in an executor that may fail, and in this process while that is unavailable.

    It is opened for the first work, and anew `_PAUSE_SECONDS` after a failure.
    """

    def __init__(self, open_: Callable[[], Opened], *, at_once: int, seconds: float) -> None:
        """Open nothing yet; a piece of work that takes longer than `seconds` has failed."""
        super().__init__()
        self.at_once = at_once
        self._open, self._seconds = open_, seconds
        self._opened: Opened | None = None
        self._opening = asyncio.Lock()
        self._away_until = 0.0  # by the event loop's clock

    async def run(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return what `work(*arguments)` returns."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._away_until:
            opened = None
            try:
                async with asyncio.timeout(self._seconds):
                    opened = await self._connected()
                    future = opened[0].submit(work, *arguments)
                    return await asyncio.wrap_future(future)
            except Exception as error:  # noqa: BLE001 -- whatever an executor can raise
                log.error("shares are added up here", **describe_exception(error))
                self._away_until = loop.time() + _PAUSE_SECONDS
                if opened is self._opened:  # of several that failed at once, the first lets go
                    await asyncio.to_thread(self._let_go)
        return await super().run(work, *arguments)

    async def run_sized(
        self, size_bytes: int, work: Callable[..., Answer], *arguments: object
    ) -> Answer:
        """Do what `run` does, whatever the size: who chose this chose it for a whole sum."""
        return await self.run(work, *arguments)

    async def _connected(self) -> Opened:
        async with self._opening:
            if self._opened is None:
                self._opened = await asyncio.to_thread(self._open)
            return self._opened

    def _let_go(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened[1]()

    def close(self) -> None:
        """Do as `Summing.close`."""
        self._let_go()
        super().close()


def open_summing(where: str) -> Summing:
    """Return what a setting asks for: `processes`, `threads` or a Dask scheduler's address.

    Raises:
        StartupRefused: an address, and Dask is not installed.
    """
    if where == "threads":
        return Summing()
    if where == "processes":
        count = min(_MOST_PROCESSES, os.cpu_count() or 1)
        return Elsewhere(partial(_processes, count), at_once=count, seconds=_STARTING_SECONDS)
    try:
        from distributed import Client  # an operator without a cluster does without it
    except ImportError as error:
        raise StartupRefused(
            "SHOAL_SUMMING names a Dask scheduler, but this installation is without Dask"
        ) from error
    connect = partial(Client, where, timeout=_CLUSTER_SECONDS, set_as_default=False)
    cluster = partial(_cluster, connect)
    return Elsewhere(cluster, at_once=_CLUSTER_AT_ONCE, seconds=_CLUSTER_SECONDS)


def _processes(count: int) -> Opened:
    """Return spawned processes: a fork would copy the locks of threads as they are."""
    pool = ProcessPoolExecutor(
        count, mp_context=multiprocessing.get_context("spawn"), initializer=_belong_to_parent
    )
    return pool, partial(pool.shutdown, wait=False, cancel_futures=True)


def _cluster(connect: Callable[[], Any]) -> Opened:
    client = connect()
    return client.get_executor(pure=False), partial(client.close, timeout=_CLUSTER_SECONDS)


def _belong_to_parent() -> None:
    """Leave signals to the parent, and end with it, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)
