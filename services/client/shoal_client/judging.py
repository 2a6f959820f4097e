"""Sees that rounds which take long to judge keep nothing else waiting; it judges none itself.

The price of many rounds with hidden participation may take seconds to work out.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

PATIENCE_SECONDS: Final = 0.1  # that a step waits for a judgement: most take milliseconds


class Judging:
    """The judgements under way, at most one for each job."""

    def __init__(self, wake: asyncio.Event | None) -> None:
        """Set `wake` when one is done that no step waited for; None is that all are waited for."""
        self._wake = wake
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def is_under_way(self, job: str) -> bool:
        """Tell whether a round of this job is being judged, or how it ended was not asked for."""
        return job in self._under_way

    async def go_on(self, job: str, judgement: Coroutine[Any, Any, None]) -> None:
        """Begin a judgement of a job's round, and wait for it, though not for long.

        Raises:
            Exception: whatever it raises by then.
        """
        if self._wake is None:
            return await judgement
        task = self._under_way[job] = asyncio.create_task(judgement)
        await asyncio.wait({task}, timeout=PATIENCE_SECONDS)
        if not task.done():
            task.add_done_callback(self._tell)
        self.settle(job)

    def _tell(self, _: asyncio.Task[None]) -> None:
        if self._wake is not None:
            self._wake.set()

    def settle(self, job: str) -> None:
        """Take note of a judgement that is done by now.

        Raises:
            Exception: whatever it raised.
        """
        if job in self._under_way and self._under_way[job].done():
            self._under_way.pop(job).result()

    async def close(self) -> None:
        """Take back what is under way."""
        tasks = list(self._under_way.values())
        self._under_way.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
