"""Transactions on what data holders signed about jobs: joins, leaves, and notices of approval.

Of each kind the last word of a data holder about a job is kept.
"""

from collections.abc import Sequence
from typing import Final

from pyroaring import BitMap
from sqlalchemy import Connection, exists, func, select

from shoal_protocol.jobs.job_state import Approvals
from shoal_protocol.jobs.membership import REFUSED, WAITS, ApprovalNotice, Join, Leave, State
from shoal_protocol.wire.documents import BoundDocument, Signed
from shoal_protocol.wire.encoding import decode_clients, encode_clients
from shoal_protocol.wire.phases import JobPhase
from shoal_service.storage.database import insert_ignoring
from shoal_trainer import schema, store
from shoal_trainer.crowds import store as crowd_store

_JOIN, _LEAVE = (kind.model_fields["kind"].default for kind in (Join, Leave))
_COLUMNS: Final = schema.memberships.c


def add_memberships(
    db: Connection,
    job: str,
    signed: Sequence[Signed[Join] | Signed[Leave] | Signed[ApprovalNotice]],
    slots: Sequence[BitMap] = (),
    *,
    joined: int = 0,
) -> None:
    """Store documents of one kind, of joins with the slots that count.

    `joined` is by how many the job's slots become more.
    """
    insert = insert_ignoring(db.dialect.name)(schema.memberships)
    newest = {name: insert.excluded[name] for name in ("state", "slots", "document")}
    rows = [
        {
            "job": job,
            "holder": each.body.holder,
            "kind": each.body.kind,
            "state": each.body.state if isinstance(each.body, ApprovalNotice) else None,
            "slots": encode_clients(slots[place]) if slots else None,
            "document": each.encode(),
        }
        for place, each in enumerate(signed)
    ]
    keys = ["job", "holder", "kind"]
    db.execute(insert.on_conflict_do_update(index_elements=keys, set_=newest), rows)
    jobs = schema.jobs.c
    more = schema.jobs.update().where(jobs.id == job).values(joined=jobs.joined + joined)
    db.execute(more)


def joined_slots(db: Connection, job: str) -> dict[int, BitMap]:
    """Return the data holders that joined a job and have not left it, with the slots counted."""
    query = select(_COLUMNS.holder, _COLUMNS.slots).where(
        _COLUMNS.job == job, _COLUMNS.kind == _JOIN
    )
    left = left_holders(db, job)
    return {
        holder: decode_clients(slots) for holder, slots in db.execute(query) if holder not in left
    }


def left_holders(db: Connection, job: str) -> BitMap:
    """Return the data holders that left a job, whether they had joined it or not."""
    query = select(_COLUMNS.holder).where(_COLUMNS.job == job, _COLUMNS.kind == _LEAVE)
    return BitMap(db.execute(query).scalars())


def states(db: Connection, job: str) -> dict[int, State]:
    """Return what data holders said of their owners' approval of a job, by holder."""
    query = select(_COLUMNS.holder, _COLUMNS.state)
    told = query.where(_COLUMNS.job == job, _COLUMNS.state.is_not(None))
    return {holder: state for holder, state in db.execute(told)}


def approvals(db: Connection, jobs: Sequence[str], *, holders: int) -> dict[str, Approvals]:
    """Return by job how many data holders, of all, wait for approval or were refused.

    Those that joined the job or left it do not count.
    """
    other = schema.memberships.alias().c
    has_decided = exists().where(
        other.job == _COLUMNS.job,
        other.holder == _COLUMNS.holder,
        other.kind.in_((_JOIN, _LEAVE)),
    )
    query = select(_COLUMNS.job, _COLUMNS.state, func.count()).where(
        _COLUMNS.job.in_(jobs), _COLUMNS.state.in_((WAITS, REFUSED)), ~has_decided
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
