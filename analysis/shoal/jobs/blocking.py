"""Runs a coroutine for programs without an event loop, and for notebooks."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in an event loop of its own, and return its result."""
    if _a_loop_runs_here():  # in a notebook's own thread
        return _in_another_thread(work)
    return asyncio.run(work)


def _a_loop_runs_here() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_another_thread(work: Coroutine[Any, Any, T]) -> T:
    """Do `work` in a loop of its own; an interruption here, whenever it comes, ends it there."""
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[T]]] = Future()
    interrupted = Event()

    async def begun() -> T:
        task = asyncio.ensure_future(work)
        running.set_result((asyncio.get_running_loop(), task))
        if interrupted.is_set():  # before there was a task to be cancelled
            task.cancel()
        return await task

    own = ThreadPoolExecutor(1)
    try:
        return own.submit(asyncio.run, begun()).result()
    except KeyboardInterrupt:
        interrupted.set()
        if running.done():
            loop, task = running.result()
            with suppress(RuntimeError):  # it ended by itself, and its loop with it
                loop.call_soon_threadsafe(task.cancel)
        raise
    finally:
        own.shutdown()
