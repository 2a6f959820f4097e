"""What an aggregator keeps, and what of a job's rounds goes some time after the last of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Table, func, select

from shoal_aggregator.schema import (
    abandonments,
    evidence,
    log_entries,
    partial_sums,
    results,
    rounds,
)
from shoal_aggregator.store import OPEN
from shoal_hosting.storage.retention import Jobs, Keeping, Keepings


def _of_rounds(table: Table) -> Any:
    return lambda chosen: table.c.round.in_(select(rounds.c.id).where(rounds.c.job.in_(chosen)))


def _due(db: Connection, before: datetime, most: int) -> Sequence[str]:
    """Return jobs all of whose rounds were decided, were over so long ago, and convict nobody."""
    convicting = select(rounds.c.job).join(evidence, evidence.c.round == rounds.c.id)
    undecided = select(rounds.c.job).where(rounds.c.phase.in_([each.value for each in OPEN]))
    others = rounds.c.job.not_in(convicting) & rounds.c.job.not_in(undecided)
    query = select(rounds.c.job).where(others).group_by(rounds.c.job)
    over = query.having(func.max(rounds.c.give_up_at) < int(before.timestamp() * 1000))
    return db.execute(over.order_by(rounds.c.job).limit(most)).scalars().all()


def _nothing_to_note(db: Connection, chosen: Jobs) -> None:
    """A job whose rounds are gone leaves nothing to be told of."""


KEEPINGS: Final = Keepings(
    (
        Keeping(
            "partial sums",
            "for results, until certificates have them",
            partial_sums,
            _of_rounds(partial_sums),
        ),
        Keeping("results", "for the trainer", results, _of_rounds(results)),
        Keeping(
            "abandonments", "why a round released nothing", abandonments, _of_rounds(abandonments)
        ),
        Keeping(
            "rounds", "so that each is decided once", rounds, lambda jobs: rounds.c.job.in_(jobs)
        ),
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
