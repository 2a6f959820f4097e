"""Reads crowd jobs from the store for the public routes; names no client."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal_protocol.certificates.study_request import JobsQuery
from shoal_protocol.crowds.documents import CrowdJobRequest, LogEntry
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.encoding import canonical_json, format_time
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.phases import CrowdPhase
from shoal_trainer import notices
from shoal_trainer.crowds import store
from shoal_trainer.crowds.book import CrowdBook
from shoal_trainer.crowds.store import CrowdState, Instance
from shoal_trainer.resources import Resources


class UnknownInstance(ProtocolError):
    """An instance that the job does not have."""

    code = "unknown-instance"
    title = "The crowd job has no such instance"
    status = 404
    remedy = "Instances are numbered from 0; the job's request says how many there are."


class CrowdJobViews:
    """Reads crowd jobs, their instances, logs and documents for the public routes."""

    def __init__(self, resources: Resources, book: CrowdBook) -> None:
        """Read from the storage of `resources`."""
        self._resources = resources
        self._storage = resources.storage
        self._book = book

    async def list_crowds(self, phase: CrowdPhase | None) -> list[dict[str, str]]:
        """Return all crowd jobs, or those in `phase`."""
        found = await self._storage.run(store.list_crowds, phase)
        return [{"job": job, "phase": phase_.value} for job, phase_ in found]

    async def newest(self, query: JobsQuery) -> dict[str, Any]:
        """Return the page of crowd jobs that an analyst asks for, and where the next one begins."""
        after, count = query.after, query.count
        found = await self._storage.run(store.newest_crowds, after=after, count=count)
        listed = await asyncio.to_thread(lambda: [_listed(*each) for each in found])
        still_open = [each["job"] for each in listed if each["phase"] == CrowdPhase.OPEN]
        counts = await self._storage.run(notices.counts, still_open)
        for each in listed:
            each["approvals"] = self._approvals(counts.get(each["job"], notices.NOBODY))
        return {
            "crowds": listed,
            "next": after + count if len(found) == count else None,
        }

    async def state(self, job: str) -> bytes:
        """Return where a crowd job stands, in JSON.

        `spread` is, for each weight, the variance over instances (divisor k - 1) in squared units
        of the weight; null with a single instance.

        Raises:
            UnknownJob
        """
        crowd = await self._book.find(job)
        found, instances = await self._storage.run(store.state, crowd.number)
        approvals = self._approvals(await self._storage.run(notices.count, job))
        return await asyncio.to_thread(
            _state_shown, crowd.request.body, found, instances, approvals
        )

    def _approvals(self, counted: dict[str, int]) -> dict[str, int]:
        return counted | {"holders": self._resources.book.current.roster.in_force}

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

    async def instances(self, job: str) -> bytes:
        """Return all instances as they are at one moment, after how many contributions, in JSON.

        Raises:
            UnknownJob
        """
        crowd = await self._book.find(job)
        found = await self._storage.run(store.snapshot, crowd.number)
        return await asyncio.to_thread(_instances_shown, job, found)

    async def log(self, job: str, instance: int, *, after: int, count: int) -> bytes:
        """Return up to `count` log entries of an instance that follow revision `after`, in JSON.

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
        following = after + count if len(entries) == count else None
        return await asyncio.to_thread(_log_shown, entries, following)


def spread_of(task: CrowdTask, instances: Sequence[Instance]) -> list[float] | None:
    """Return the unbiased variance over k instances of each weight, in its squared units."""
    if len(instances) < 2:
        return None
    weights = np.array([each.weights for each in instances]) / task.grid
    return [float(each) for each in weights.var(axis=0, ddof=1)]


def _listed(encoded: bytes, phase: CrowdPhase, contributions: int) -> dict[str, Any]:
    request = decode(encoded, CrowdJobRequest).body
    return {
        "job": request.digest,
        "phase": phase.value,
        "analyst": request.analyst,
        "family": request.task.family,
        "epsilon": request.task.epsilon,
        "contributions": contributions,
        "wanted": request.contributions,
        "closes_at": format_time(request.closes_at),
    }


def _state_shown(
    request: CrowdJobRequest,
    state: CrowdState,
    instances: Sequence[Instance],
    approvals: dict[str, int],
) -> bytes:
    return canonical_json(
        {
            "job": request.digest,
            "phase": state.phase.value,
            "contributions": state.contributions,
            "contributors": state.contributors,
            "wanted": request.contributions,
            "instances": request.task.instances,
            "spread": spread_of(request.task, instances),
            "approvals": approvals,
            "closes_at": format_time(request.closes_at),
        }
    )


def _instances_shown(job: str, instances: Sequence[Instance]) -> bytes:
    return canonical_json(
        {
            "job": job,
            "contributions": sum(each.revision for each in instances),
            "instances": [
                {"revision": each.revision, "weights": list(each.weights)} for each in instances
            ],
        }
    )


def _log_shown(entries: Sequence[LogEntry], following: int | None) -> bytes:
    shown = [entry.model_dump(mode="json") for entry in entries]
    return canonical_json({"entries": shown, "next": following})
