"""Transactions on what data holders said of their owners' approval; each keeps its last word."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, func, select

from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.jobs.approvals import REFUSED, WAITS, ApprovalNotice, State
from shoal_protocol.wire.documents import BoundDocument, Signed, read_kept
from shoal_protocol.wire.phases import JobPhase
from shoal_trainer import schema, store
from shoal_trainer.crowds import store as crowd_store

NOBODY: Final = dict.fromkeys((WAITS, REFUSED), 0)


def asked_about(db: Connection, job: str) -> tuple[BoundDocument, bool]:
    """Return the request of a job of either kind, and whether owners may still decide about it.

    Raises:
        UnknownJob
    """
    if store.knows_job(db, job):
        record = store.find_job(db, job)
        return read_kept(record.request, StudyRequest).body, record.phase is JobPhase.JOINING
    crowd = crowd_store.find_crowd(db, job)
    return crowd.request.body, crowd_store.find_closing(db, crowd.number) is None


def states(db: Connection, job: str) -> dict[int, State]:
    """Return what data holders said of their owners' approval of a job, by holder."""
    columns = schema.notices.c
    query = select(columns.holder, columns.state).where(columns.job == job)
    return {holder: state for holder, state in db.execute(query)}


def count(db: Connection, job: str) -> dict[str, int]:
    """Return how many data holders that are not in a job wait for approval, or were refused."""
    columns = schema.notices.c
    decided = [
        columns.holder.not_in(select(each.c.holder).where(each.c.job == job))
        for each in (schema.joins, schema.leaves)
    ]
    query = select(columns.state, func.count()).where(columns.job == job, *decided)
    counts = {state: count for state, count in db.execute(query.group_by(columns.state))}
    return {state: counts.get(state, 0) for state in (WAITS, REFUSED)}


def counts(db: Connection, jobs: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the `count` of each of these jobs."""
    return {job: count(db, job) for job in jobs}


def put(db: Connection, job: str, notices: Sequence[Signed[ApprovalNotice]]) -> None:
    """Store notices, each in the place of its data holder's earlier one."""
    columns = schema.notices.c
    for each in notices:
        own = (columns.job == job) & (columns.holder == each.body.holder)
        db.execute(schema.notices.delete().where(own))
    db.execute(
        schema.notices.insert(),
        [
            {
                "job": job,
                "holder": each.body.holder,
                "state": each.body.state,
                "document": each.encode(),
            }
            for each in notices
        ],
    )
