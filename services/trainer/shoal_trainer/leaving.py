"""The transactions by which clients leave jobs and analysts withdraw them; they begin no job."""

from collections.abc import Sequence
from datetime import datetime

from pyroaring import BitMap
from sqlalchemy import Connection, func, select

from shoal_protocol.documents import Signed
from shoal_protocol.membership import JobWithdrawal, Leave
from shoal_protocol.phases import JobEvent, Phase
from shoal_trainer import schema, store


def left_clients(db: Connection, job: str) -> BitMap:
    """Return the clients that left a job, whether they had joined it or not."""
    columns = schema.leaves.c
    return BitMap(db.execute(select(columns.client).where(columns.job == job)).scalars())


def count_left(db: Connection, job: str) -> int:
    """Return how many clients left a job."""
    counted = select(func.count()).where(schema.leaves.c.job == job)
    return int(db.execute(counted).scalar_one())


def add_leaves(
    db: Connection, job: str, leaves: Sequence[Signed[Leave]], *, fewer_joined: int
) -> None:
    """Store the leaves of clients that have not left the job yet; `fewer_joined` had joined it."""
    rows = [{"job": job, "client": each.body.client, "document": each.encode()} for each in leaves]
    db.execute(schema.leaves.insert(), rows)
    columns = schema.jobs.c
    fewer = schema.jobs.update().where(columns.id == job)
    db.execute(fewer.values(joined=columns.joined - fewer_joined))


def withdraw_job(db: Connection, signed: Signed[JobWithdrawal], *, at: datetime) -> bool:
    """End a job as its analyst signed; False if it is withdrawn already.

    A round that no client was told of is given back. Any other one goes on at the services, and
    what it cost stays charged.

    Raises:
        WrongPhase: the job has ended otherwise.
        LedgerBroken
    """
    job = signed.body.job
    if find_withdrawal(db, job) is not None:
        return False
    store.move_job(db, job, JobEvent.WITHDRAWN)
    db.execute(schema.withdrawals.insert().values(job=job, document=signed.encode()))
    columns = schema.rounds.c
    untold = (columns.job == job) & (columns.phase == Phase.ANNOUNCED.value)
    for round_id in db.execute(select(columns.id).where(untold)).scalars().all():
        store.lose_round(db, round_id, None, at=at)
    return True


def find_withdrawal(db: Connection, job: str) -> bytes | None:
    """Return the wire form of a job's withdrawal, if there is one."""
    columns = schema.withdrawals.c
    found: bytes | None = db.execute(
        select(columns.document).where(columns.job == job)
    ).scalar_one_or_none()
    return found
