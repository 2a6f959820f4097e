"""Gathers items into batches.

One batch is in work while the next one fills: the busier the service, the larger the batches and
the fewer the waits for the disk. Nobody waits for a batch to fill.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")
OutcomeT = TypeVar("OutcomeT")
_Group = tuple[Sequence[ItemT], asyncio.Future[list[OutcomeT]]]  # stays in one batch


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
        self._waiting: deque[_Group[ItemT, OutcomeT]] = deque()
        self._in_work: set[asyncio.Task[None]] = set()

    async def submit(self, item: ItemT) -> OutcomeT:
        """Add an item; return its outcome when its batch is done."""
        [outcome] = await self._add([item])
        return outcome

    async def submit_all(self, items: Sequence[ItemT]) -> list[OutcomeT]:
        """Add items; return their outcomes, in order, when their batches are done."""
        starts = range(0, len(items), self._largest)
        groups = (self._add(items[start : start + self._largest]) for start in starts)
        return [outcome for group in await asyncio.gather(*groups) for outcome in group]

    def _add(self, items: Sequence[ItemT]) -> asyncio.Future[list[OutcomeT]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[OutcomeT]] = loop.create_future()
        if not self._waiting:  # whatever else arrives in this turn of the loop comes along
            loop.call_soon(self._begin)
        self._waiting.append((items, future))
        return future

    def _begin(self) -> None:
        while self._waiting and len(self._in_work) < self._at_once:
            batch = [self._waiting.popleft()]
            size = len(batch[0][0])
            while self._waiting and size + len(self._waiting[0][0]) <= self._largest:
                batch.append(self._waiting.popleft())
                size += len(batch[-1][0])
            task = asyncio.get_running_loop().create_task(self._carry_out(batch))
            self._in_work.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._in_work.discard(task)
        self._begin()

    async def _carry_out(self, batch: list[_Group[ItemT, OutcomeT]]) -> None:
        try:
            outcomes = iter(await self._work([item for items, _ in batch for item in items]))
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 -- it is raised to every submitter of the batch
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for items, future in batch:
            own = list(islice(outcomes, len(items)))
            if not future.done():
                future.set_result(own)
