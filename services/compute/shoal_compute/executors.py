"""Where shares are added up: a thread, other processes, or a Dask cluster; it knows no share.

Whatever happens to a process or to the cluster, the work is done: it gives the same sum anywhere.
"""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import structlog

from shoal_hosting.logs import describe_exception
from shoal_hosting.security import StartupRefused

_MOST_PROCESSES: Final = 4
_ATTEMPTS: Final = 3
_CLUSTER_AT_ONCE: Final = 8
_CLUSTER_TIMEOUT_SECONDS: Final = 10.0  # a batch takes a hundredth of a second
_CLUSTER_PAUSE_SECONDS: Final = 30.0

log = structlog.get_logger()
Answer = TypeVar("Answer")


class Summing(Protocol):
    """Does work elsewhere than in the event loop."""

    @property
    def at_once(self) -> int:
        """Return how many pieces of work it can do at the same time."""

    async def run(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return what `work(*arguments)` returns."""

    def close(self) -> None:
        """Let go of threads, processes and connections."""


def open_summing(where: str) -> Summing:
    """Return what a setting asks for: `processes`, `threads` or a Dask scheduler's address.

    Raises:
        StartupRefused: an address, and Dask is not installed.
    """
    if where == "threads":
        return Threads()
    if where == "processes":
        return Processes()
    try:
        return Cluster(where)
    except ImportError as error:
        raise StartupRefused(
            "SHOAL_SUMMING names a Dask scheduler, but this installation is without Dask"
        ) from error


class Threads:
    """One thread of this process; or any executor that is handed in."""

    at_once = 1

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="summing")

    async def run(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return what `work(*arguments)` returns."""
        call = partial(work, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        """Wait for the work that was begun."""
        self._executor.shutdown()


class Processes:
    """A few processes on this machine, which start when there is work and are replaced if killed.

    They are spawned, not forked: a fork would copy this process's threads' locks as they are. Each
    has an executor of its own: one for them all would start a process while it breaks, and then
    fail with an error of its insides or wait for that process for ever.
    """

    def __init__(self) -> None:
        """Start nothing yet."""
        self.at_once = min(_MOST_PROCESSES, os.cpu_count() or 1)
        self._places = asyncio.Semaphore(self.at_once)
        self._idle: list[ProcessPoolExecutor] = []
        self._here = Threads()

    async def run(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return what `work(*arguments)` returns, in a process that lived long enough.

        Where no process can be started, a thread does it.

        Raises:
            BrokenExecutor: one process after another ended during the work.
        """
        async with self._places:
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    return await self._run_once(partial(work, *arguments))
                except BrokenExecutor:  # the kernel, short of memory, kills the largest process
                    log.error("a process that added shares up was killed", attempt=attempt)
        raise BrokenExecutor("one process after another ended during the work")

    async def _run_once(self, call: Callable[[], Answer]) -> Answer:
        try:
            process, future = self._submitted(call)
        except (OSError, NotImplementedError) as error:  # as with no room for a semaphore
            log.error("no process can be started", **describe_exception(error))
            return await self._here.run(call)
        try:
            answer = await asyncio.wrap_future(future)
        except BrokenExecutor:
            process.shutdown(wait=False)
            raise
        except BaseException:  # the work's own, or nobody waits for it any more
            self._idle.append(process)
            raise
        self._idle.append(process)
        return answer

    def _submitted(self, call: Callable[[], Answer]) -> tuple[ProcessPoolExecutor, Future[Answer]]:
        while self._idle:
            process = self._idle.pop()
            try:
                return process, process.submit(call)
            except BrokenExecutor:  # it was killed while it had nothing to do
                process.shutdown(wait=False)
        process = _one_process()
        return process, process.submit(call)  # which starts it

    def close(self) -> None:
        """End the processes."""
        for process in self._idle:
            process.shutdown(cancel_futures=True)
        self._here.close()


def _one_process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), initializer=_belong_to_parent
    )


def _belong_to_parent() -> None:
    """Leave signals to the parent, and end with it, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


class Cluster:
    """A Dask cluster of the operator's own, or one thread here while the cluster is away."""

    at_once = _CLUSTER_AT_ONCE

    def __init__(self, address: str) -> None:
        """Connect to nothing yet.

        Raises:
            ImportError: Dask is not installed.
        """
        from distributed import Client  # an operator without a cluster does without it

        self._connect = partial(
            Client, address, timeout=_CLUSTER_TIMEOUT_SECONDS, set_as_default=False
        )
        self._client: Any = None
        self._away_until = 0.0  # by the event loop's clock
        self._connecting = asyncio.Lock()
        self._here = Threads()

    async def run(self, work: Callable[..., Answer], *arguments: object) -> Answer:
        """Return what `work(*arguments)` returns."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._away_until:
            try:
                async with asyncio.timeout(_CLUSTER_TIMEOUT_SECONDS):
                    executor = await self._connected()
                    answer: Answer = await asyncio.wrap_future(executor.submit(work, *arguments))
                    return answer
            except Exception as error:  # noqa: BLE001 -- whatever a cluster can raise
                log.error(
                    "the cluster is away, shares are added up here", **describe_exception(error)
                )
                self._away_until = loop.time() + _CLUSTER_PAUSE_SECONDS
                await asyncio.to_thread(self._disconnect)
        return await self._here.run(work, *arguments)

    async def _connected(self) -> Any:
        async with self._connecting:
            if self._client is None:
                self._client = await asyncio.to_thread(self._connect)
            return self._client.get_executor(pure=False)

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close(timeout=_CLUSTER_TIMEOUT_SECONDS)

    def close(self) -> None:
        """Let go of the cluster."""
        self._disconnect()
        self._here.close()
