"""Tells whether a trainer may still fetch what became of a round that was decided here."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from sqlalchemy import Connection, func, select

from shoal_aggregator.schema import rounds
from shoal_aggregator.store import OPEN, milliseconds
from shoal_hosting.job_standing import ask_standing
from shoal_hosting.service import Resources
from shoal_protocol.rounds.round_spec import RoundSpec


class AwaitedOutcomes:
    """Asks the trainers, once this aggregator was retired, whether they have what they need of it.

    Nobody tells it that they do, and a round that was decided has no outcome anywhere else.
    """

    def __init__(
        self, resources: Resources, spec_of: Callable[[str], Awaitable[RoundSpec]]
    ) -> None:
        """Ask as the aggregator whose `resources` they are; `spec_of` returns a round's spec."""
        self._own, self._spec_of = resources, spec_of
        self._fetched: set[str] = set()  # rounds, by their trainer's word

    async def any_left(self) -> bool:
        """Tell whether a trainer waits, or may wait, for what became of a round.

        A trainer that does not answer is waited for as long as it would wait for an aggregator.
        """
        own = self._own
        since = own.clock() - own.patience
        for round_id in await own.storage.run(_decided, since=since):
            if round_id not in self._fetched:
                if not await self._has(await self._spec_of(round_id)):
                    return True
                self._fetched.add(round_id)
        return False

    async def _has(self, spec: RoundSpec) -> bool:
        standing = await ask_standing(self._own, spec.job, manifest=spec.manifest)
        return standing is not None and standing.is_past(spec.number)


def _decided(db: Connection, *, since: datetime) -> Sequence[str]:
    """Return the newest rounds of jobs that have ended, and whose time was up after `since`."""
    columns = rounds.c
    last = func.max(columns.number).label("number")
    newest = select(columns.job, last).group_by(columns.job).subquery()
    query = (
        select(columns.id)
        .join(newest, (newest.c.job == columns.job) & (newest.c.number == columns.number))
        .where(
            columns.phase.not_in([each.value for each in OPEN]),
            columns.give_up_at > milliseconds(since),
        )
    )
    return db.execute(query).scalars().all()
