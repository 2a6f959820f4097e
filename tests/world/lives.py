"""The life of a process: the tasks that belong to it, all of which end when it is killed."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")

_OWNER: ContextVar["Life | None"] = ContextVar("owner", default=None)


class Life:
    """One process from its start to its end. What it spawns, and what that spawns, is its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = False
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._context = copy_context()
        self._context.run(_OWNER.set, self)

    def own(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)

    def run(self, call: Callable[..., T], *arguments: Any) -> T:
        """Do something in this process at once, such as starting it."""
        return self._context.run(call, *arguments)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start work in this process."""
        return asyncio.get_running_loop().create_task(work, context=self._context.copy())

    def kill(self) -> None:
        """End the process where it stands: no task of it gets any further than its next await."""
        self.ended = True
        for task in list(self._tasks):
            task.cancel()

    async def outcome(self, task: asyncio.Task[T]) -> T | None:
        """Wait for a task of this process; None if the process was killed first."""
        await asyncio.wait({task})
        return None if task.cancelled() and self.ended else task.result()

    async def buried(self) -> None:
        """Wait until every task has come to its end."""
        while left := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(left)


def owner() -> Life | None:
    """Return the process that runs just now; None outside all of them."""
    return _OWNER.get()


async def quiet() -> None:
    """Let all tasks run until each has ended or waits for the clock or for somebody else."""
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(0)  # timers that have come due join those that are ready
    while loop._ready:  # noqa: ASYNC110 -- there is no event for "nothing is ready"
        await asyncio.sleep(0)


def keep_track_of_tasks() -> None:
    """Have the running loop tell each life which tasks it owns."""

    def make(
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any],
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, context=context)
        owner = context.get(_OWNER) if context is not None else _OWNER.get()
        if owner is not None:
            owner.own(task)
        return task

    asyncio.get_running_loop().set_task_factory(make)  # type: ignore[arg-type]
