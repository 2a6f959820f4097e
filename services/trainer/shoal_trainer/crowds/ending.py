"""The transactions that end crowd jobs: in due course, or as an analyst asks; they open none."""

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Connection, select

from shoal_protocol.documents import Signed, decode
from shoal_protocol.draw_and_discard.documents import (
    CrowdClosing,
    CrowdClosingRequest,
    CrowdOpening,
)
from shoal_protocol.phases import CrowdPhase
from shoal_trainer.crowds.store import CrowdRecord, find_opening, snapshot
from shoal_trainer.schema import crowds


def close(
    db: Connection,
    crowd: CrowdRecord,
    sign: Callable[[CrowdClosing], Signed[CrowdClosing]],
    *,
    now: datetime,
    asked: Signed[CrowdClosingRequest] | None = None,
) -> bool:
    """Close a crowd job if it is due, or its analyst `asked`; tell whether it was done here.

    Submissions hold the job's row while they replace instances: each is in the closing, or refused.
    What its analyst asked is in the closing of a job that was not due. None is dated before its
    opening.
    """
    jobs, request = crowds.jobs.c, crowd.request.body
    query = select(jobs.phase, jobs.contributions).where(jobs.number == crowd.number)
    phase, contributions = db.execute(query.with_for_update(key_share=True)).one()
    if CrowdPhase(phase) is CrowdPhase.CLOSED:
        return False
    is_due = now >= request.closes_at or contributions >= request.contributions
    if not is_due and asked is None:
        return False
    opening = decode(find_opening(db, crowd.number), CrowdOpening)
    closing = CrowdClosing(
        manifest=request.manifest,
        job=request.digest,
        seed=crowd.seed.hex(),
        heads=tuple(each.head() for each in snapshot(db, crowd.number)),
        contributions=contributions,
        closed_at=max(now, opening.body.opened_at),  # the clock may have been set back since
        closing_request=None if is_due else asked,
    )
    closed = {"phase": CrowdPhase.CLOSED.value, "closing": sign(closing).encode()}
    db.execute(crowds.jobs.update().where(jobs.number == crowd.number).values(closed))
    return True


def close_early(
    db: Connection,
    crowd: CrowdRecord,
    sign: Callable[[CrowdClosing], Signed[CrowdClosing]],
    *,
    now: datetime,
    asked: Signed[CrowdClosingRequest],
) -> tuple[bytes, bool]:
    """Close a crowd job now, unless it is closed; return its closing, and whether it is new."""
    is_new = close(db, crowd, sign, now=now, asked=asked)
    query = select(crowds.jobs.c.closing).where(crowds.jobs.c.number == crowd.number)
    closing: bytes = db.execute(query).scalar_one()
    return closing, is_new


def erase_counts(db: Connection, most: int) -> bool:
    """Erase up to `most` clients' counts of a closed job; tell whether there may be more.

    After closing nobody is counted any more, and retries are known by their nonces.
    """
    jobs, columns = crowds.jobs.c, crowds.contributors.c
    closed = (jobs.phase == CrowdPhase.CLOSED.value) & ~jobs.erased
    number = db.execute(select(jobs.number).where(closed).limit(1)).scalar_one_or_none()
    if number is None:
        return False
    due = select(columns.client).where(columns.job == number).limit(most)
    clients = db.execute(due).scalars().all()
    if clients:
        chosen = (columns.job == number) & columns.client.in_(clients)
        db.execute(crowds.contributors.delete().where(chosen))
    if len(clients) < most:
        db.execute(crowds.jobs.update().where(jobs.number == number).values(erased=True))
    return True
