"""Transactions on what data holders said of their owners' approval; each keeps its last word."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, exists, func, select

from shoal_protocol.jobs.membership import REFUSED, WAITS, ApprovalNotice, State
from shoal_protocol.wire.documents import BoundDocument, Signed
from shoal_protocol.wire.phases import JobPhase
from shoal_service.storage.database import insert_ignoring
from shoal_trainer import schema, store
from shoal_trainer.crowds import store as crowd_store

NOBODY: Final = dict.fromkeys((WAITS, REFUSED), 0)


def request_of(db: Connection, job: str) -> tuple[BoundDocument, bool]:
    """Return the request of a job of either kind, and whether its owners may still decide.

    Raises:
        UnknownJob
    """
    if store.knows_job(db, job):
        record = store.find_job(db, job)
        return record.study, record.phase is JobPhase.JOINING
    crowd = crowd_store.find_crowd(db, job)
    is_open = job in dict(crowd_store.open_crowds(db))
    return crowd.request.body, is_open


def states(db: Connection, job: str) -> dict[int, State]:
    """Return what data holders said of their owners' approval of a job, by holder."""
    columns = schema.notices.c
    query = select(columns.holder, columns.state).where(columns.job == job)
    return {holder: state for holder, state in db.execute(query)}


def counts(db: Connection, jobs: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return by job how many data holders not in it wait for approval, or were refused."""
    columns = schema.notices.c
    undecided = [
        ~exists().where(each.c.job == columns.job, each.c.holder == columns.holder)
        for each in (schema.joins, schema.leaves)
    ]
    query = select(columns.job, columns.state, func.count()).where(
        columns.job.in_(jobs), columns.state.in_(NOBODY), *undecided
    )
    found = {job: dict(NOBODY) for job in jobs}
    for job, state, number in db.execute(query.group_by(columns.job, columns.state)):
        found[job][state] = number
    return found


def put(db: Connection, job: str, notices: Sequence[Signed[ApprovalNotice]]) -> None:
    """Store notices, each in the place of its data holder's earlier one."""
    insert = insert_ignoring(db.dialect.name)(schema.notices)
    newest = {"state": insert.excluded.state, "document": insert.excluded.document}
    rows = [
        {
            "job": job,
            "holder": each.body.holder,
            "state": each.body.state,
            "document": each.encode(),
        }
        for each in notices
    ]
    db.execute(insert.on_conflict_do_update(index_elements=["job", "holder"], set_=newest), rows)
