"""Transactions on where data holders stand with jobs: the last word of each about each job."""

from collections.abc import Sequence
from typing import Final

from pyroaring import BitMap
from sqlalchemy import Connection, func, select

from shoal_protocol.jobs.job_state import Approvals
from shoal_protocol.jobs.membership import JOINED, LEFT, REFUSED, WAITS, Membership, State
from shoal_protocol.wire.documents import BoundDocument, Signed
from shoal_protocol.wire.encoding import decode_clients, encode_clients
from shoal_protocol.wire.phases import JobPhase
from shoal_service.storage.database import insert_ignoring
from shoal_trainer import schema, store
from shoal_trainer.crowds import store as crowd_store

_COLUMNS: Final = schema.memberships.c


def keep(
    db: Connection, signed: Signed[Membership], slots: BitMap | None = None, *, more: int = 0
) -> None:
    """Store a data holder's last word about a job, of who joins with the slots that count.

    `more` is by how many the job's slots become more.
    """
    body = signed.body
    insert = insert_ignoring(db.dialect.name)(schema.memberships)
    row = {
        "state": body.state,
        "slots": None if slots is None else encode_clients(slots),
        "document": signed.encode(),
    }
    new = insert.values(job=body.job, holder=body.holder, **row)
    db.execute(new.on_conflict_do_update(index_elements=["job", "holder"], set_=row))
    jobs = schema.jobs.c
    db.execute(schema.jobs.update().where(jobs.id == body.job).values(joined=jobs.joined + more))


def find(db: Connection, job: str, holder: int) -> tuple[State | None, BitMap]:
    """Return where a data holder stands with a job, and with which slots if it joined."""
    query = select(_COLUMNS.state, _COLUMNS.slots)
    row = db.execute(query.where(_COLUMNS.job == job, _COLUMNS.holder == holder)).one_or_none()
    if row is None:
        return None, BitMap()
    return row.state, BitMap() if row.slots is None else decode_clients(row.slots)


def joined_slots(db: Connection, job: str) -> dict[int, BitMap]:
    """Return the data holders that joined a job and have not left it, with the slots counted."""
    query = select(_COLUMNS.holder, _COLUMNS.slots)
    joined = query.where(_COLUMNS.job == job, _COLUMNS.state == JOINED)
    return {holder: decode_clients(slots) for holder, slots in db.execute(joined)}


def left(db: Connection, job: str) -> int:
    """Return how many data holders left a job, whether they had joined it or not."""
    query = select(func.count()).where(_COLUMNS.job == job, _COLUMNS.state == LEFT)
    return db.execute(query).scalar_one()


def states(db: Connection, job: str) -> dict[int, State]:
    """Return where data holders stand with a job."""
    query = select(_COLUMNS.holder, _COLUMNS.state).where(_COLUMNS.job == job)
    return {holder: state for holder, state in db.execute(query)}


def approvals(db: Connection, jobs: Sequence[str], *, holders: int) -> dict[str, Approvals]:
    """Return by job how many data holders, of all, wait for approval or were refused."""
    query = select(_COLUMNS.job, _COLUMNS.state, func.count()).where(
        _COLUMNS.job.in_(jobs), _COLUMNS.state.in_((WAITS, REFUSED))
    )
    found = {job: Approvals(holders=holders) for job in jobs}
    for job, state, number in db.execute(query.group_by(_COLUMNS.job, _COLUMNS.state)):
        setattr(found[job], state, number)
    return found


def request_of(db: Connection, job: str) -> tuple[BoundDocument, bool]:
    """Return the request of a job of either kind, and whether its owners may still decide.

    Raises:
        UnknownJob
    """
    for record in store.find_jobs(db, schema.jobs.c.id == job):
        return record.study, record.phase is JobPhase.JOINING
    crowd = crowd_store.find_crowd(db, job)
    is_open = job in dict(crowd_store.open_crowds(db))
    return crowd.request.body, is_open
