"""The transactions of crowd jobs, but for replacement, and a cache of what never changes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from sqlalchemy import Column, Connection, Row, Select, select

from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    InstanceHead,
    LogEntry,
)
from shoal_protocol.crowds.tasks import first_weights
from shoal_protocol.jobs.membership import JobWithdrawal
from shoal_protocol.journal import GENESIS
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import UnknownJob
from shoal_protocol.wire.phases import CrowdPhase
from shoal_service.storage.database import insert_ignoring
from shoal_service.storage.retention import delete_some
from shoal_trainer.resources import Resources
from shoal_trainer.schema import crowds, memberships

_WEIGHT = np.dtype("<i8")


@dataclass(frozen=True)
class CrowdRecord:
    """The immutable part of a crowd job. The seed fixes all draws, and is left out of `repr`."""

    number: int
    request: Signed[CrowdJobRequest]
    seed: bytes = field(repr=False)


def pack(weights: Sequence[int]) -> bytes:
    """Return weights, shape (p,), as the store keeps them."""
    return np.array(weights, _WEIGHT).tobytes()


def add_crowd(
    db: Connection,
    request: Signed[CrowdJobRequest],
    opening: Signed[CrowdOpening],
    seed: bytes,
) -> bool:
    """Open a crowd job that was checked; False if it was opened before, and then stays as it is."""
    new = insert_ignoring(db.dialect.name)(crowds.jobs).values(
        id=request.digest,
        request=request.encode(),
        opening=opening.encode(),
        seed=seed,
        phase=CrowdPhase.OPEN.value,
        contributions=0,
        contributors=0,
        erased=False,
    )
    number = db.execute(
        new.on_conflict_do_nothing().returning(crowds.jobs.c.number)
    ).scalar_one_or_none()
    if number is None:
        return False
    task = request.body.task
    begun = {
        "job": number,
        "revision": 0,
        "digest": bytes.fromhex(GENESIS),
        "weights": pack(first_weights(task).tolist()),
    }
    rows = [begun | {"instance": instance} for instance in range(task.instances)]
    db.execute(crowds.instances.insert(), rows)
    return True


def find_crowd(db: Connection, job: str) -> CrowdRecord:
    """Return a crowd job.

    Raises:
        UnknownJob
    """
    columns = crowds.jobs.c
    query = select(columns.number, columns.request, columns.seed).where(columns.id == job)
    row = db.execute(query).one_or_none()
    if row is None:
        raise UnknownJob
    return CrowdRecord(row.number, decode(row.request, CrowdJobRequest), row.seed)


def newest_crowds(db: Connection, *, after: int, count: int) -> Sequence[tuple[bytes, str, int]]:
    """Return `count` crowd jobs but the `after` newest, the newest first.

    Each is its signed request, its phase, and the number of its contributions.
    """
    columns = crowds.jobs.c
    query = select(columns.request, columns.phase, columns.contributions)
    query = query.order_by(columns.number.desc()).offset(after).limit(count)
    return [(row.request, row.phase, row.contributions) for row in db.execute(query)]


def open_crowds(db: Connection) -> Sequence[tuple[str, int]]:
    """Return the crowd jobs that are open, with their numbers of contributions."""
    columns = crowds.jobs.c
    query = select(columns.id, columns.contributions)
    rows = db.execute(query.where(columns.phase == CrowdPhase.OPEN.value))
    return [(row.id, row.contributions) for row in rows]


def state(db: Connection, number: int) -> tuple[Any, list[InstanceHead]]:
    """Return phase and counts of the crowd job of that number, and its instances."""
    columns = crowds.jobs.c
    query = select(columns.phase, columns.contributions, columns.contributors)
    counts = db.execute(query.where(columns.number == number)).one()
    return counts, snapshot(db, number)


def find_document(db: Connection, number: int, column: Column[Any]) -> Any:
    """Return a crowd job's signed opening or closing, as `column` says; None: there is none yet."""
    return db.execute(select(column).where(crowds.jobs.c.number == number)).scalar_one()


def open_instances(
    db: Connection, wanted: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], InstanceHead]:
    """Return the wanted instances, by number of the job and index, of those jobs that are open.

    Instances of one job are of one moment.
    """
    by_job: dict[int, set[int]] = {}
    for number, instance in wanted:
        by_job.setdefault(number, set()).add(instance)
    found = {}
    columns, jobs = crowds.instances.c, crowds.jobs.c
    for number, indices in by_job.items():
        query = _instances(number).join(crowds.jobs, jobs.number == columns.job)
        query = query.where(columns.instance.in_(indices), jobs.phase == CrowdPhase.OPEN.value)
        found.update({(number, row.instance): _instance(row) for row in db.execute(query)})
    return found


def snapshot(db: Connection, number: int) -> list[InstanceHead]:
    """Return all instances of a job in order, as they are at one moment."""
    rows = db.execute(_instances(number).order_by(crowds.instances.c.instance))
    return [_instance(row) for row in rows]


def _instances(number: int) -> Select[tuple[int, int, bytes, bytes]]:
    columns = crowds.instances.c
    query = select(columns.instance, columns.revision, columns.digest, columns.weights)
    return query.where(columns.job == number)


def _instance(row: Row[tuple[int, int, bytes, bytes]]) -> InstanceHead:
    weights = tuple(np.frombuffer(row.weights, _WEIGHT).tolist())
    return InstanceHead.model_construct(
        revision=row.revision, digest=row.digest.hex(), weights=weights
    )


def log_page(
    db: Connection, job: str, number: int, instance: int, *, after: int, count: int
) -> list[LogEntry]:
    """Return up to `count` of an instance's log entries that follow revision `after`."""
    columns = crowds.log.c
    query = select(columns.revision, columns.previous, columns.nonce, columns.weights).where(
        columns.job == number, columns.instance == instance, columns.revision > after
    )
    return [
        log_entry(job, instance, *row)
        for row in db.execute(query.order_by(columns.revision).limit(count))
    ]


def log_entry(
    job: str, instance: int, revision: int, previous: bytes, nonce: bytes, weights: bytes
) -> LogEntry:
    """Return the entry that a row of the log holds."""
    return LogEntry(
        job=job,
        instance=instance,
        revision=revision,
        previous=previous.hex(),
        nonce=nonce.hex(),
        weights=weights.hex(),
    )


def close(
    db: Connection,
    crowd: CrowdRecord,
    sign: Callable[[CrowdClosing], Signed[CrowdClosing]],
    *,
    now: datetime,
    asked: Signed[JobWithdrawal] | None = None,
) -> bool:
    """Close a crowd job if it is due, or its analyst `asked`; tell whether it was done here.

    Submissions lock the job's row while they replace instances: each is in the closing, or refused.
    The closing of a job that was not due holds its analyst's request. No closing is dated before
    its job's opening.
    """
    jobs, request = crowds.jobs.c, crowd.request.body
    query = select(jobs.phase, jobs.contributions).where(jobs.number == crowd.number)
    phase, contributions = db.execute(query.with_for_update(key_share=True)).one()
    if CrowdPhase(phase) is CrowdPhase.CLOSED:
        return False
    is_due = now >= request.closes_at or contributions >= request.contributions
    if not is_due and asked is None:
        return False
    opening = decode(find_document(db, crowd.number, jobs.opening), CrowdOpening)
    closing = CrowdClosing(
        manifest=request.manifest,
        job=request.digest,
        seed=crowd.seed.hex(),
        heads=tuple(snapshot(db, crowd.number)),
        contributions=contributions,
        closed_at=max(now, opening.body.opened_at),  # the clock may have been set back since
        closing_request=None if is_due else asked,
    )
    closed = {"phase": CrowdPhase.CLOSED.value, "closing": sign(closing).encode()}
    db.execute(crowds.jobs.update().where(jobs.number == crowd.number).values(closed))
    return True


def erase_counts(db: Connection, most: int) -> bool:
    """Erase up to `most` clients' counts of a closed job; tell whether there may be more.

    After closing nobody is counted any more, and retries are known by their nonces. Nor does
    anybody wait for owners.
    """
    jobs = crowds.jobs.c
    closed = (jobs.phase == CrowdPhase.CLOSED.value) & ~jobs.erased
    number = db.execute(select(jobs.number).where(closed).limit(1)).scalar_one_or_none()
    if number is None:
        return False
    counted = crowds.contributors.c.job == number
    if not delete_some(db, crowds.contributors, counted, most):
        own = select(jobs.id).where(jobs.number == number).scalar_subquery()
        db.execute(memberships.delete().where(memberships.c.job == own))
        db.execute(crowds.jobs.update().where(jobs.number == number).values(erased=True))
    return True


class CrowdBook:
    """A cache of crowd jobs, filled on the first request to each."""

    def __init__(self, resources: Resources) -> None:
        """Begin with an empty cache."""
        self._resources = resources
        self._known: dict[str, CrowdRecord] = {}

    async def find(self, job: str) -> CrowdRecord:
        """Return a crowd job.

        Raises:
            UnknownJob
        """
        known = self._known.get(job)
        if known is None:
            known = self._known[job] = await self._resources.storage.run(self._look_up, job)
        return known

    def _look_up(self, db: Connection, job: str) -> CrowdRecord:
        # another process may have opened it under a newer manifest
        self._resources.manifests.exchange(db)
        return find_crowd(db, job)
