"""Transactions on what data holders said of their owners' approval; each keeps its last word."""

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from shoal_protocol.jobs.approvals import REFUSED, WAITS, ApprovalNotice
from shoal_protocol.wire.documents import Signed
from shoal_trainer import schema


def states(db: Connection, job: str) -> dict[int, str]:
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
