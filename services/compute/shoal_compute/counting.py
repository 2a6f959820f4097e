"""Counts the shares that all replicas of this node have stored, at intervals.

The counts only hint at when to freeze: the freeze itself reads what is on file.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap
from sqlalchemy import Connection, select

from shoal_compute.rounds import Round
from shoal_compute.schema import rounds
from shoal_compute.shares import count_held, held_holders
from shoal_hosting.storage.database import StorageThread

# The pause between two counts is this many times the duration of the last one.
_REST: Final = 20.0


@dataclass(frozen=True)
class _Counted:
    held: int
    next_at: float  # by the event loop's clock


class Counts:
    """The number of shares of each open round, over all replicas."""

    def __init__(self, storage: StorageThread) -> None:
        """Begin without counts."""
        self._storage = storage
        self._counted: dict[str, _Counted] = {}

    async def look(self, known: Round) -> None:
        """Count if that is due, and note whose shares are held once a freeze may depend on that.

        A freeze depends on it when everybody's share is here, or all other nodes have frozen.

        Raises:
            StorageUnavailable
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        before = self._counted.get(known.id)
        if before is not None and begun < before.next_at:
            return
        peers_froze = all(name in known.holdings for name in known.peers)
        enough = len(known.held) + 1 if peers_froze else len(known.intake.asked_here)
        count, held = await self._storage.run(_count, known.id, enough)
        if held is not None:
            known.held |= held
        now = loop.time()
        self._counted[known.id] = _Counted(count, now + _REST * (now - begun))

    def held(self, known: Round) -> int:
        """Return how many holders' shares were stored by all replicas, when last counted."""
        counted = self._counted.get(known.id)
        return len(known.held) if counted is None else max(counted.held, len(known.held))

    def forget(self, round_id: str) -> None:
        """Forget a round that takes no more shares."""
        self._counted.pop(round_id, None)


def _count(db: Connection, round_id: str, enough: int) -> tuple[int, BitMap | None]:
    number = db.execute(select(rounds.c.number).where(rounds.c.id == round_id)).scalar_one()
    count = count_held(db, number)
    return count, held_holders(db, number) if count >= enough else None
