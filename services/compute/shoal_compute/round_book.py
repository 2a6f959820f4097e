"""Keeps rounds in memory, loaded from the store."""

import asyncio
from collections import ChainMap, OrderedDict
from collections.abc import Collection
from datetime import datetime
from functools import partial
from typing import Any, Final

import structlog
from prometheus_client import Gauge
from pyroaring import BitMap
from sqlalchemy import Connection, Row, select

from shoal_compute import store
from shoal_compute.rounds import Round, open_round
from shoal_compute.schema import rounds
from shoal_compute.shares import held_answers
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import UnknownManifest, UnknownRound
from shoal_protocol.wire.phases import FINISHED, TAKES_SHARES, Phase
from shoal_service.service import Resources

log = structlog.get_logger()


# The pause between two looks at what a round holds is this many times the duration of the last one.
_REST: Final = 20.0


def _held(db: Connection, round_id: str) -> BitMap:
    number = db.execute(select(rounds.c.number).where(rounds.c.id == round_id)).scalar_one()
    return held_answers(db, number).holders


_FINISHED_IN_MEMORY: Final = 32
_LOADED_AT_ONCE: Final = 4  # loaded by request of anyone; each may be megabytes


class RoundBook:
    """Rounds in memory, by id: all `live` ones, which have work left, and a few finished ones."""

    def __init__(self, resources: Resources) -> None:
        """Load every live round; for start-up, it waits for the database.

        Raises:
            StorageUnavailable, UnknownManifest
        """
        self._own = resources
        self._storage, self._book = resources.storage, resources.book
        # by round: when to look at what it holds, by the event loop's clock
        self._look_at: dict[str, float] = {}
        self._finished: OrderedDict[str, Round] = OrderedDict()
        self.live: dict[str, Round] = self._storage.run_here(
            lambda db: {row.id: self._open(db, row) for row in store.rounds_with_work(db)}
        )
        gauge = Gauge(
            "shoal_compute_rounds",
            "Rounds with work left, by phase",
            ["phase"],
            registry=resources.registry,
        )
        for phase in Phase:
            gauge.labels(phase.value).set_function(partial(self._in_phase, phase))

    def _in_phase(self, phase: Phase) -> int:
        return sum(each.phase is phase for each in list(self.live.values()))

    async def oldest_open(self) -> datetime | None:
        """Return when the oldest round was opened that is not over; None: there is none."""
        opened = [
            each.spec.body.opened_at for each in self.live.values() if each.phase not in FINISHED
        ]
        return min(opened, default=None)

    def _load(self, db: Connection, round_id: str, known: Round | None = None) -> Round | None:
        row = store.get_round(db, round_id)
        return None if row is None else self._open(db, row, known)

    def _open(self, db: Connection, row: Row[Any], known: Round | None = None) -> Round:
        spec, phase = decode(row.spec, RoundSpec), Phase(row.phase)
        consortium = self._consortium(db, spec.body.manifest)
        # the list of held answers is slow to read, and final once the round is frozen
        if known is not None and (known.phase not in TAKES_SHARES or phase in TAKES_SHARES):
            held = known.held
        else:
            held = held_answers(db, row.number).holders
        opened = open_round(
            spec,
            held,
            consortium,
            self._own.party,
            phase=phase,
            reported=row.reported,
            erased=row.erased,
        )
        for signed, kept in store.documents_of(db, row.number, row.id):
            opened.learn(signed, kept)
        return opened

    def _consortium(self, db: Connection, digest: str) -> Consortium:
        try:
            return self._book.get(digest)
        except UnknownManifest:  # another replica may have accepted it
            self._own.manifests.exchange(db)
            return self._book.get(digest)

    async def find(self, round_id: str) -> Round:
        """Return a round.

        Raises:
            UnknownRound: it was never announced here.
            UnknownManifest: it is bound to a manifest that no replica has accepted.
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
        if known is not None:
            return known
        if loaded.done:
            self.retire(loaded)
        else:
            self.live[round_id] = loaded
        return loaded

    async def find_some(self, round_ids: Collection[str]) -> dict[str, Round]:
        """Return those of these rounds that are in memory, and a few that are on file only.

        A loaded round stays in memory for a while, so that repeated calls reach other rounds.

        Raises:
            StorageUnavailable
        """
        here = ChainMap(self.live, self._finished)
        found = {each: here[each] for each in round_ids if each in here}
        if absent := [each for each in round_ids if each not in here]:
            for round_id in await self._storage.run(store.on_file, absent, _LOADED_AT_ONCE):
                try:
                    found[round_id] = await self.find(round_id)
                except (UnknownRound, UnknownManifest):
                    continue
        return found

    async def reload(self, known: Round) -> None:
        """Replace a live round in memory by its state on file."""
        loaded = await self._storage.run(self._load, known.id, known)
        if loaded is not None:
            loaded.held |= known.held  # whatever was noted meanwhile is durable too
            loaded.voting, loaded.over = known.voting, known.over  # of which no file tells
            vars(known).update(vars(loaded))

    async def refresh(self) -> None:
        """Update every live round to its state on file, where other replicas move rounds too.

        Raises:
            StorageUnavailable
        """
        on_file = await self._storage.run(store.glance)
        for round_id in on_file.keys() - self.live.keys():
            try:
                await self.find(round_id)
            except UnknownManifest:
                log.error("a round on file is bound to an unknown manifest", round=round_id)
        for known in list(self.live.values()):
            stored = on_file.get(known.id)
            own = (known.phase, known.reported, known.erased, len(known.documents))
            if stored != own and not (stored is None and known.done):
                await self.reload(known)
            if known.phase in TAKES_SHARES:
                await self._look(known)

    async def _look(self, known: Round) -> None:
        """Note whose shares all replicas have stored in a round, if that is due.

        It only hints at when to freeze: the freeze itself reads what is stored.

        Raises:
            StorageUnavailable
        """
        clock = asyncio.get_running_loop().time
        if (begun := clock()) < self._look_at.get(known.id, begun):
            return
        known.held |= await self._storage.run(_held, known.id)
        now = clock()
        self._look_at[known.id] = now + _REST * (now - begun)

    def over(self, job: str, *, before: int | None = None) -> None:
        """Note that the trainer is done with a job's rounds, those with numbers below `before`."""
        for known in self.live.values():
            spec = known.spec.body
            if spec.job == job and (before is None or spec.number < before):
                known.over = True

    def retire(self, known: Round) -> None:
        """Note that no work is left in a round."""
        self.live.pop(known.id, None)
        self._look_at.pop(known.id, None)
        self._finished[known.id] = known
        while len(self._finished) > _FINISHED_IN_MEMORY:
            self._finished.popitem(last=False)
