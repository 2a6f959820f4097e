"""Tells whether a trainer may still fetch what became of a round that was decided here."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, func, select

from shoal_aggregator.schema import rounds
from shoal_aggregator.store import OPEN, milliseconds
from shoal_hosting.job_standing import ask_standing
from shoal_hosting.service import Resources
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import read_kept


@dataclass(frozen=True)
class _Decided:
    """The newest round of a job, which has ended here: its id, number and signed spec."""

    round: str
    job: str
    number: int
    spec: bytes


class AwaitedOutcomes:
    """Asks the trainers, once this aggregator was retired, whether they have what they need of it.

    Nobody tells it that they do, and a round that was decided has no outcome anywhere else.
    """

    def __init__(self, resources: Resources) -> None:
        """Ask as the aggregator whose `resources` they are."""
        self._own = resources
        self._fetched: set[str] = set()  # rounds, by their trainer's word

    async def any_left(self) -> bool:
        """Tell whether a trainer waits, or may wait, for what became of a round.

        A trainer that does not answer is waited for as long as it would wait for an aggregator.
        """
        own = self._own
        patience = timedelta(seconds=own.book.current.manifest.policy.maximum_round_seconds)
        for each in await own.storage.run(_decided, since=own.clock() - patience):
            if each.round not in self._fetched:
                if not await self._has(each):
                    return True
                self._fetched.add(each.round)
        return False

    async def _has(self, decided: _Decided) -> bool:
        spec = (await asyncio.to_thread(read_kept, decided.spec, RoundSpec)).body
        standing = await ask_standing(self._own, decided.job, manifest=spec.manifest)
        return standing is not None and standing.is_past(decided.number)


def _decided(db: Connection, *, since: datetime) -> list[_Decided]:
    """Return the newest rounds of jobs that have ended, and whose time was up after `since`."""
    columns = rounds.c
    last = func.max(columns.number).label("number")
    newest = select(columns.job, last).group_by(columns.job).subquery()
    query = (
        select(columns.id, columns.job, columns.number, columns.spec)
        .join(newest, (newest.c.job == columns.job) & (newest.c.number == columns.number))
        .where(
            columns.phase.not_in([each.value for each in OPEN]),
            columns.give_up_at > milliseconds(since),
        )
    )
    return [_Decided(*row) for row in db.execute(query)]
