"""Gathers single items into batches.

One batch is in work while the next one fills: the busier the service, the larger the batches and
the fewer the waits for the disk. Nobody waits for a batch to fill.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")
OutcomeT = TypeVar("OutcomeT")


class Batches(Generic[ItemT, OutcomeT]):
    """Hands items to `work` in batches and each item's outcome to who submitted it.

    `work` gets up to `largest` items and returns one outcome for each, in order; if it raises,
    all of the batch share the exception. At most `at_once` batches are in work. For one event
    loop.
    """

    def __init__(
        self,
        work: Callable[[list[ItemT]], Awaitable[Sequence[OutcomeT]]],
        *,
        largest: int,
        at_once: int = 1,
    ) -> None:
        self._work = work
        self._largest = largest
        self._at_once = at_once
        self._waiting: deque[tuple[ItemT, asyncio.Future[OutcomeT]]] = deque()
        self._in_work: set[asyncio.Task[None]] = set()

    def submit(self, item: ItemT) -> asyncio.Future[OutcomeT]:
        """Add an item; the future resolves when its batch is done."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[OutcomeT] = loop.create_future()
        if not self._waiting:  # whatever else arrives in this turn of the loop comes along
            loop.call_soon(self._begin)
        self._waiting.append((item, future))
        return future

    def _begin(self) -> None:
        while self._waiting and len(self._in_work) < self._at_once:
            size = min(self._largest, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(size)]
            task = asyncio.get_running_loop().create_task(self._carry_out(batch))
            self._in_work.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._in_work.discard(task)
        self._begin()

    async def _carry_out(self, batch: list[tuple[ItemT, asyncio.Future[OutcomeT]]]) -> None:
        try:
            outcomes = await self._work([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 -- it is raised to every submitter of the batch
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            if not future.done():
                future.set_result(outcome)
