"""What the trainer shows of its crowd jobs: reads the store, changes nothing, names no client."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal_protocol.draw_and_discard.tasks import CrowdTask
from shoal_protocol.encoding import format_time
from shoal_protocol.phases import CrowdPhase
from shoal_trainer.crowds import store
from shoal_trainer.crowds.book import CrowdBook
from shoal_trainer.crowds.errors import UnknownInstance
from shoal_trainer.crowds.store import CrowdState, Instance
from shoal_trainer.resources import Resources


class CrowdRecords:
    """Crowd jobs and their instances, logs and documents, for whoever asks."""

    def __init__(self, resources: Resources, book: CrowdBook) -> None:
        """Read from the storage of `resources`."""
        self._storage = resources.storage
        self._book = book

    async def is_ready(self) -> None:
        """Raise `StorageUnavailable` unless the database answers."""
        await self._storage.run(store.answers)

    async def list_crowds(self, phase: CrowdPhase | None) -> list[dict[str, str]]:
        """Return all crowd jobs, or those in `phase`."""
        found = await self._storage.run(store.list_crowds, phase)
        return [{"job": job, "phase": phase_.value} for job, phase_ in found]

    async def state(self, job: str) -> dict[str, Any]:
        """Return where a crowd job stands.

        `spread` is, for each weight, the variance over instances (divisor k - 1) in squared units
        of the weight; null with a single instance.

        Raises:
            UnknownJob
        """
        crowd = await self._book.find(job)
        found, instances = await self._storage.run(store.state, crowd.number)
        request = crowd.request.body
        spread = await asyncio.to_thread(spread_of, request.task, instances)
        return _shown(found) | {
            "job": job,
            "wanted": request.contributions,
            "instances": request.task.instances,
            "spread": spread,
            "closes_at": format_time(request.closes_at),
        }

    async def request(self, job: str) -> bytes:
        """Return the signed request.

        Raises:
            UnknownJob
        """
        return (await self._book.find(job)).request.encode()

    async def opening(self, job: str) -> bytes:
        """Return the signed opening.

        Raises:
            UnknownJob
        """
        crowd = await self._book.find(job)
        return await self._storage.run(store.find_opening, crowd.number)

    async def closing(self, job: str) -> bytes | None:
        """Return the signed closing, None while the job is open.

        Raises:
            UnknownJob
        """
        crowd = await self._book.find(job)
        return await self._storage.run(store.find_closing, crowd.number)

    async def instances(self, job: str) -> dict[str, Any]:
        """Return all instances as they are at one moment, and by how many contributions.

        Raises:
            UnknownJob
        """
        crowd = await self._book.find(job)
        found = await self._storage.run(store.snapshot, crowd.number)
        return {
            "job": job,
            "contributions": sum(each.revision for each in found),
            "instances": [{"revision": each.revision, "weights": each.weights} for each in found],
        }

    async def log(self, job: str, instance: int, *, after: int, count: int) -> dict[str, Any]:
        """Return up to `count` log entries of an instance that follow revision `after`.

        `next` is the last one's revision, None if there was no more than that.

        Raises:
            UnknownJob, UnknownInstance
        """
        crowd = await self._book.find(job)
        if instance >= crowd.request.body.task.instances:
            raise UnknownInstance
        page = store.log_page
        entries = await self._storage.run(
            page, job, crowd.number, instance, after=after, count=count
        )
        shown = await asyncio.to_thread(lambda: [each.model_dump(mode="json") for each in entries])
        return {"entries": shown, "next": after + count if len(entries) == count else None}


def spread_of(task: CrowdTask, instances: Sequence[Instance]) -> list[float] | None:
    """Return the unbiased variance over k instances of each weight, in its squared units."""
    if len(instances) < 2:
        return None
    weights = np.array([each.weights for each in instances]) / task.grid
    return [float(each) for each in weights.var(axis=0, ddof=1)]


def _shown(state: CrowdState) -> dict[str, Any]:
    return {
        "phase": state.phase.value,
        "contributions": state.contributions,
        "contributors": state.contributors,
    }
