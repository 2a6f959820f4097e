"""What a Compute node keeps, and what of a job goes some time after its end."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, select

from shoal_compute.schema import bulks, documents, jobs, ledger, machines, rounds, shares, totals
from shoal_hosting.storage.retention import Jobs, Keeping, Keepings


def _due(db: Connection, before: datetime, most: int) -> Sequence[str]:
    query = select(jobs.c.job).where(jobs.c.ends_by < before.timestamp())
    return db.execute(query.order_by(jobs.c.job).limit(most)).scalars().all()


def _nothing_to_note(db: Connection, chosen: Jobs) -> None:
    """A request that is gone leaves nothing to be told of."""


KEEPINGS: Final = Keepings(
    (
        Keeping(
            "job requests", "rounds are held to them", jobs, lambda chosen: jobs.c.job.in_(chosen)
        ),
        Keeping(
            "shares",
            "who answered, for holders that lose their ledger; contents go with the round",
            shares,
        ),
        Keeping("shares in bulk", "the same", bulks),
        Keeping("documents of rounds", "they prove the own sums, and convict who lies", documents),
        Keeping("rounds", "the ledger is checked by them", rounds),
        Keeping("totals", "a job that is over stays so", totals),
        Keeping("machines of data holders", "a superseded one stays so", machines),
        Keeping("ledger entries", "caps rest on them", ledger.entries),
    ),
    due=_due,
    begin=_nothing_to_note,
    note=_nothing_to_note,
)
