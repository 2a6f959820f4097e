"""Runs the crowds' work beside a data holder's steps: no round waits for it; it knows no job."""

import asyncio
from collections.abc import Awaitable, Callable


class Beside:
    """One step of the crowds' work at a time, which may outlast a data holder's step."""

    def __init__(self, step: Callable[[], Awaitable[None]]) -> None:
        """Begin with nothing under way."""
        self._step = step
        self._task: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Tell whether a step is under way, or how it ended was not asked for."""
        return self._task is not None

    def begin(self) -> None:
        """See that a step is under way; raise what the one before it raised."""
        self._settle()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def wait(self, patience_seconds: float) -> None:
        """Wait for the step, though not for long; raise what it raised."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=patience_seconds)
            self._settle()

    async def end(self) -> None:
        """Take back what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    async def _run(self) -> None:
        await self._step()

    def _settle(self) -> None:
        if self._task is not None and self._task.done():
            done, self._task = self._task, None
            done.result()
