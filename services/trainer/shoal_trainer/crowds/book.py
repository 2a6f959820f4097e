"""Caches the immutable part of each crowd job, which every request to the job needs."""

from sqlalchemy import Connection

from shoal_trainer.crowds import store
from shoal_trainer.crowds.store import CrowdRecord
from shoal_trainer.resources import Resources


class CrowdBook:
    """A cache of crowd jobs, filled on the first request to each."""

    def __init__(self, resources: Resources) -> None:
        """Begin with an empty cache."""
        self._resources = resources
        self._known: dict[str, CrowdRecord] = {}

    async def find(self, job: str) -> CrowdRecord:
        """Return a crowd job.

        Raises:
            UnknownJob
        """
        known = self._known.get(job)
        if known is None:
            known = self._known[job] = await self._resources.storage.run(self._look_up, job)
        return known

    def _look_up(self, db: Connection, job: str) -> CrowdRecord:
        manifests = self._resources.manifests
        if manifests is not None:  # another process may have opened it under a newer one
            manifests.exchange(db)
        return store.find_crowd(db, job)
