"""Puts an aggregator together out of a party, its manifests, a data directory and a clock.

What of a job's rounds goes some time after the last of them is told here, too. A round that has a
node's newest partial sum stays as it is: a node that was set back is shown that sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Unpack

from sqlalchemy import Connection, Select, func, select

from shoal_aggregator import schema
from shoal_aggregator.aggregator import Aggregator
from shoal_aggregator.app import create_app
from shoal_aggregator.schema import journal, received, rounds
from shoal_aggregator.store import (
    NEWEST_FIRST,
    OPEN,
    Standing,
    find_newest_sum,
    is_published_sum,
)
from shoal_protocol.keeping import Loss
from shoal_protocol.rounds.attestations import END, Abandonment, Result
from shoal_service import service
from shoal_service.keepers import Keepers
from shoal_service.storage import retention
from shoal_service.storage.journal import Journal
from shoal_service.storage.retention import MOST_JOBS, Retention, delete_some


def _newest_rounds() -> Select[tuple[str]]:
    """Return SQL for the rounds with the sums that `find_newest_sum` finds."""
    place = func.row_number().over(partition_by=received.c.node, order_by=NEWEST_FIRST)
    ranked = (
        select(rounds.c.id, place.label("place"))
        .join(received, rounds.c.id == received.c.round)
        .where(is_published_sum())
        .subquery()
    )
    return select(ranked.c.id).where(ranked.c.place == 1)


def _due(db: Connection, before: datetime) -> Sequence[str]:
    """Return jobs all of whose rounds were decided, were over so long ago, and convict nobody."""
    convicting = select(rounds.c.job).join(received, received.c.round == rounds.c.id)
    convicting = convicting.where(received.c.standing == Standing.EVIDENCE.value)
    undecided = select(rounds.c.job).where(rounds.c.phase.in_([each.value for each in OPEN]))
    left = select(rounds.c.job).where(rounds.c.id.not_in(_newest_rounds()))
    others = rounds.c.job.not_in(convicting.union(undecided)) & rounds.c.job.in_(left)
    query = select(rounds.c.job).where(others).group_by(rounds.c.job)
    over = query.having(func.max(rounds.c.give_up_at) < int(before.timestamp() * 1000))
    return db.execute(over.order_by(rounds.c.job).limit(MOST_JOBS)).scalars().all()


def forget(db: Connection, before: datetime) -> bool:
    """Delete rounds of jobs whose last round was over before a moment; tell whether any were due.

    The newest of each node's sums stay, with their rounds; evidence for ever.
    """
    due = _due(db, before)
    goes = rounds.c.job.in_(due) & rounds.c.id.not_in(_newest_rounds())
    gone = select(rounds.c.id).where(goes)
    if due and not delete_some(db, received, received.c.round.in_(gone)):
        if not journal.forget(db, END, gone, most=retention.MOST_ROWS):
            delete_some(db, rounds, goes)
    return bool(due)


@dataclass(frozen=True, eq=False)
class Service(service.Service):
    """A running aggregator."""

    aggregator: Aggregator
    retention: Retention

    async def step(self) -> None:
        """Do all the work that is due now, once."""
        await self.aggregator.step()
        await self.retention.step()
        self.resources.standing.erase(())


def assemble(**given: Unpack[service.Given]) -> Service:
    """Return the aggregator that is `given`, going on from what its database holds.

    It calls the other services for the heads of journals that they keep, once, when it is new, and
    the trainer once it is retired.

    Raises:
        StartupRefused: as `Resources.open`.
        StorageUnavailable: the database does not answer.
    """
    resources = service.Resources.open(schema, alone=True, **given)
    with resources.starting():
        kept = Journal(journal, resources.storage, Loss, Result, Abandonment)
        keepers = Keepers(
            resources, kept, schema.kept, find_newest_sum, accept=given.get("accept_loss")
        )
    aggregator = Aggregator(resources, kept, keepers)
    resources.vitals.watch_open_rounds(aggregator.oldest_open)
    app = create_app(aggregator, resources)
    return Service(app, resources, aggregator, Retention(resources, forget, knows_ends=False))
