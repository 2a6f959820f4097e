"""Runs what would hold up the event loop: one thread for the disk, a pool for sealing."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from shoal_client.state import State

P = ParamSpec("P")
T = TypeVar("T")


class Background:
    """Runs state operations one after another, and heavy work in `executor`.

    `executor` None is a thread; a `ProcessPoolExecutor` also works, if all that is handed to it
    can be pickled.
    """

    def __init__(self, state: State, executor: Executor | None) -> None:
        self._state = state
        self._disk = ThreadPoolExecutor(1, "shoal-state")
        self._own_executor = None if executor else ThreadPoolExecutor(1, "shoal-seal")
        self._executor = executor or self._own_executor

    async def disk(
        self, operation: Callable[Concatenate[State, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an operation of the state on the disk's thread."""
        call = partial(operation, self._state, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._disk, call)

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run heavy work off the event loop."""
        call = partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        """Wait for what is under way and close the state."""
        if self._own_executor is not None:
            self._own_executor.shutdown()
        self._disk.shutdown()
        self._state.close()
