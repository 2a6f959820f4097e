"""What every request to a crowd job needs of it and never changes: looked up once, then known."""

from shoal_hosting.storage import StorageThread
from shoal_trainer.crowds import store
from shoal_trainer.crowds.store import CrowdRecord


class CrowdBook:
    """The crowd jobs that this process has been asked about."""

    def __init__(self, storage: StorageThread) -> None:
        """Know none yet."""
        self._storage = storage
        self._known: dict[str, CrowdRecord] = {}

    async def find(self, job: str) -> CrowdRecord:
        """Return a crowd job.

        Raises:
            UnknownJob
        """
        known = self._known.get(job)
        if known is None:
            known = self._known[job] = await self._storage.run(store.find_crowd, job)
        return known
