"""What an aggregator keeps, and what of a job's rounds goes some time after the last of them.

A round that has a node's newest partial sum stays as it is: data holders ask for that sum, to see
how far the node's ledger got.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, Table, func, select

from shoal_aggregator.schema import (
    abandonments,
    evidence,
    log_entries,
    partial_sums,
    results,
    rounds,
)
from shoal_aggregator.store import NEWEST_FIRST, OPEN
from shoal_hosting.storage.retention import Jobs, Keeping, Keepings
from shoal_protocol.wire.phases import Phase


def _newest_rounds() -> Select[tuple[str]]:
    """Return SQL for the rounds with the sums that `find_newest_sum` finds."""
    place = func.row_number().over(partition_by=partial_sums.c.node, order_by=NEWEST_FIRST)
    ranked = (
        select(rounds.c.id, place.label("place"))
        .join(partial_sums, rounds.c.id == partial_sums.c.round)
        .where(rounds.c.phase == Phase.PUBLISHED.value)
        .subquery()
    )
    return select(ranked.c.id).where(ranked.c.place == 1)


def _goes(chosen: Jobs) -> ColumnElement[bool]:
    return rounds.c.job.in_(chosen) & rounds.c.id.not_in(_newest_rounds())


def _of_rounds(table: Table) -> Any:
    return lambda chosen: table.c.round.in_(select(rounds.c.id).where(_goes(chosen)))


def _due(db: Connection, before: datetime, most: int) -> Sequence[str]:
    """Return jobs all of whose rounds were decided, were over so long ago, and convict nobody."""
    convicting = select(rounds.c.job).join(evidence, evidence.c.round == rounds.c.id)
    undecided = select(rounds.c.job).where(rounds.c.phase.in_([each.value for each in OPEN]))
    left = select(rounds.c.job).where(rounds.c.id.not_in(_newest_rounds()))
    others = rounds.c.job.not_in(convicting.union(undecided)) & rounds.c.job.in_(left)
    query = select(rounds.c.job).where(others).group_by(rounds.c.job)
    over = query.having(func.max(rounds.c.give_up_at) < int(before.timestamp() * 1000))
    return db.execute(over.order_by(rounds.c.job).limit(most)).scalars().all()


def _nothing_to_note(db: Connection, chosen: Jobs) -> None:
    """A job whose rounds are gone leaves nothing to be told of."""


KEEPINGS: Final = Keepings(
    (
        Keeping(
            "partial sums",
            "for results, until certificates have them, and each node's newest for data holders",
            partial_sums,
            _of_rounds(partial_sums),
            newest_stays=True,
        ),
        Keeping("results", "for the trainer", results, _of_rounds(results), newest_stays=True),
        Keeping(
            "abandonments", "why a round released nothing", abandonments, _of_rounds(abandonments)
        ),
        Keeping("rounds", "so that each is decided once", rounds, _goes, newest_stays=True),
        Keeping(
            "evidence", "it convicts who signed two things, and keeps the job's rounds", evidence
        ),
        Keeping("log entries", "nobody can rewrite what was published", log_entries),
    ),
    due=_due,
    begin=_nothing_to_note,
    note=_nothing_to_note,
    knows_ends=False,
)
