"""The rounds in memory, and how they get there from the store; it moves none of them on."""

from collections import OrderedDict
from typing import Final

from sqlalchemy import Connection

from shoal_compute import store
from shoal_compute.metrics import Metrics
from shoal_compute.rounds import Round, open_round
from shoal_compute.shares import held_clients
from shoal_compute.store import StoredRound
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.party import Party
from shoal_hosting.storage import StorageThread
from shoal_protocol.errors import UnknownRound

_FINISHED_IN_MEMORY: Final = 32


class RoundBook:
    """Rounds by id: `live` ones, in which there is something to do, and a few finished ones."""

    def __init__(
        self, storage: StorageThread, book: ManifestBook, party: Party, metrics: Metrics
    ) -> None:
        """Load every live round; for start-up, it waits for the database.

        Raises:
            StorageUnavailable, UnknownManifest
        """
        self._storage = storage
        self._book = book
        self._party = party
        self._metrics = metrics
        self._finished: OrderedDict[str, Round] = OrderedDict()
        self.live: dict[str, Round] = {}
        self.live.update(storage.run_here(self._load_live))
        metrics.set_rounds(storage.run_here(store.count_phases))

    def _load_live(self, db: Connection) -> dict[str, Round]:
        return {stored.id: self._open(db, stored) for stored in store.rounds_with_work(db)}

    def _load(self, db: Connection, round_id: str) -> Round | None:
        stored = store.get_round(db, round_id)
        return None if stored is None else self._open(db, stored)

    def _open(self, db: Connection, stored: StoredRound) -> Round:
        consortium = self._book.get(stored.spec.body.manifest)
        return open_round(stored, held_clients(db, stored.number), consortium, self._party)

    async def find(self, round_id: str) -> Round:
        """Return a round.

        Raises:
            UnknownRound: it was never announced here.
            StorageUnavailable
        """
        known = self.live.get(round_id) or self._finished.get(round_id)
        if known is not None:
            return known
        loaded = await self._storage.run(self._load, round_id)
        if loaded is None:
            raise UnknownRound
        # while the store was read, somebody else may have put it in its place
        known = self.live.get(round_id) or self._finished.get(round_id)
        return known or self._place(loaded)

    async def reload(self, known: Round) -> None:
        """Make a live round in memory what it is on file."""
        fresh = await self._storage.run(self._load, known.id)
        if fresh is not None:
            fresh.held |= known.held  # whatever was noted meanwhile is durable too
            if fresh.phase is not known.phase:
                self._metrics.moved(known.phase, fresh.phase)
            vars(known).update(vars(fresh))

    def retire(self, known: Round) -> None:
        """Note that there is nothing left to do in a round."""
        self.live.pop(known.id, None)
        self._place(known)

    def _place(self, known: Round) -> Round:
        if not known.done:
            self.live[known.id] = known
            return known
        self._finished[known.id] = known
        while len(self._finished) > _FINISHED_IN_MEMORY:
            self._finished.popitem(last=False)
        return known
