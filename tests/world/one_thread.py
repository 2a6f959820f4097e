"""Runs what services hand to their threads at once and in place, so every run is the same run.

A crash then falls between two transactions and never into one, and no zombie goes on writing.
What was written survives it, so databases need not wait for the disk, which takes most of the time.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from sqlalchemy.util import await_only, greenlet_spawn

from shoal_service.storage import database

_THEIR_NAMES = (
    "shoal_agent.vault_link.ThreadPoolExecutor",
    "shoal_service.work.ThreadPoolExecutor",
    "shoal_service.storage.thread.ThreadPoolExecutor",
)


_FASTER = ("PRAGMA synchronous=OFF", "PRAGMA busy_timeout=1")  # nobody unlocks while we wait


class InPlace(ThreadPoolExecutor):
    """An executor without a thread."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def one_thread() -> Iterator[None]:
    """Let all services that are assembled inside do their work in the event loop's thread."""
    asyncio.get_running_loop().set_default_executor(InPlace(1))
    with ExitStack() as patches:
        # what an analyst does in a thread, her conversations among it, goes on in place
        patches.enter_context(patch("asyncio.to_thread", greenlet_spawn))
        patches.enter_context(patch("shoal.jobs.trainer_line.run", lambda work: await_only(work())))
        for name in _THEIR_NAMES:
            patches.enter_context(patch(name, InPlace))
        pragmas = (*database._PRAGMAS, *_FASTER)
        patches.enter_context(patch.object(database, "_PRAGMAS", pragmas))
        yield
