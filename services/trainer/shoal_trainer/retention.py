"""What a trainer keeps, and what of a job goes some time after its end."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, select, update

from shoal_hosting.storage.retention import Jobs, Keeping, Keepings
from shoal_protocol.wire.phases import JobPhase
from shoal_trainer.ledger import last_certified
from shoal_trainer.schema import (
    certificates,
    jobs,
    joins,
    leaves,
    ledger,
    notices,
    partial_sums,
    reports,
    rounds,
    totals,
    withdrawals,
)

_OPEN: Final = (JobPhase.JOINING.value, JobPhase.RUNNING.value)


def _of_jobs(table: Table) -> Any:
    return lambda chosen: table.c.job.in_(chosen)


def _sums_of(chosen: Jobs) -> ColumnElement[bool]:
    return partial_sums.c.round.in_(select(rounds.c.id).where(rounds.c.job.in_(chosen)))


def _is_replaced() -> ColumnElement[bool]:
    """Return SQL for certificates that the ledger is not checked by."""
    return certificates.c.job.is_distinct_from(last_certified())


def _older_certificates(chosen: Jobs) -> ColumnElement[bool]:
    return certificates.c.job.in_(chosen) & _is_replaced()


def _due(db: Connection, before: datetime, most: int) -> Sequence[str]:
    """Return jobs that ended so long ago, those whose deletion was begun first.

    One waits for its certificate, however long it takes. One whose certificate was the newest when
    all else was deleted is due again once there is a newer one.
    """
    columns = jobs.c
    certified = select(certificates.c.job)
    uncertified = select(reports.c.job).where(reports.c.job.not_in(certified))
    over = (columns.ends_by < before.timestamp()) & columns.phase.not_in(_OPEN)
    is_due = columns.erased | (over & columns.id.not_in(uncertified))
    replaced = select(certificates.c.job).where(_is_replaced())
    has_some = ~columns.emptied | columns.id.in_(replaced)
    query = select(columns.id).where(has_some, is_due)
    return db.execute(query.order_by(columns.erased.desc(), columns.id).limit(most)).scalars().all()


def _begin(db: Connection, chosen: Jobs) -> None:
    """Have the jobs answer as deleted before the first of their documents goes."""
    db.execute(update(jobs).where(jobs.c.id.in_(chosen)).values(erased=True))


def _note(db: Connection, chosen: Jobs) -> None:
    db.execute(update(jobs).where(jobs.c.id.in_(chosen)).values(emptied=True))


KEEPINGS: Final = Keepings(
    (
        # before its certificate: a result without one would be certified again
        Keeping("results", "for the analyst", reports, _of_jobs(reports)),
        Keeping(
            "certificates",
            "for whoever checks a release, and the newest to check the ledger by",
            certificates,
            _older_certificates,
            newest_stays=True,
        ),
        Keeping("totals that nodes signed", "for certificates", totals, _of_jobs(totals)),
        Keeping("partial sums", "for certificates", partial_sums, _sums_of),
        Keeping("joins", "who took part", joins, _of_jobs(joins)),
        Keeping("leaves", "who left", leaves, _of_jobs(leaves)),
        Keeping("notices", "whose owners were asked", notices, _of_jobs(notices)),
        Keeping("withdrawals", "why a job ended", withdrawals, _of_jobs(withdrawals)),
        Keeping("job requests", "the list of jobs, and what the ledger charges", jobs),
        Keeping("rounds", "the ledger is checked by them", rounds),
        Keeping("ledger entries", "caps rest on them", ledger.entries),
    ),
    due=_due,
    begin=_begin,
    note=_note,
)
