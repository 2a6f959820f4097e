"""Conversations with the trainer for programs without an event loop, and for notebooks."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Any, TypeVar

from shoal_client.async_analyst import AsyncAnalyst

T = TypeVar("T")
Connect = Callable[[], AsyncAnalyst]


def converse(connect: Connect, conversation: Callable[[AsyncAnalyst], Awaitable[T]]) -> T:
    """Have a conversation in an event loop of its own, and return what comes of it."""

    async def connected() -> T:
        async with connect() as core:  # connections belong to one event loop
            return await conversation(core)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        in_notebook = False
    else:
        in_notebook = True
    if not in_notebook:
        return asyncio.run(connected())
    return _in_another_thread(connected())  # a notebook's own thread already runs a loop


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
