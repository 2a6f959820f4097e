"""The trainer's transactions, for `StorageThread.run`; each leaves a job in one of its phases.

A phase changes only from the one that was read: whoever comes second changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, func, select

from shoal_hosting.storage import insert_ignoring
from shoal_protocol.attestations import Abandonment, PartialSum, Result
from shoal_protocol.documents import Signed, decode
from shoal_protocol.errors import UnknownJob, WrongPhase
from shoal_protocol.jobs import JobRequest
from shoal_protocol.membership import Join
from shoal_protocol.phases import JOB, JobEvent, JobPhase, Phase, after
from shoal_protocol.rounds import RoundSpec
from shoal_trainer import schema
from shoal_trainer.ledger import Ledger


@dataclass(frozen=True)
class JobRecord:
    """Where a job stands. `population` is a bitmap in base64, once it is fixed."""

    job: str
    request: bytes
    phase: JobPhase
    joined: int
    population: str | None
    reason: str | None


@dataclass(frozen=True)
class RoundRecord:
    """A round of a job."""

    round: str
    number: int
    spec: bytes
    phase: Phase


@dataclass(frozen=True)
class FiledRound:
    """A round's documents: its signed spec and, once it ended, the aggregator's word."""

    spec: bytes
    phase: Phase
    outcome: bytes | None


def answers(db: Connection) -> None:
    """Find out whether the database answers."""
    db.execute(select(1))


def add_job(db: Connection, signed: Signed[JobRequest]) -> bool:
    """Store a job request that was checked; False if it is known."""
    statement = insert_ignoring(db)(schema.jobs).values(
        id=signed.digest,
        request=signed.encode(),
        phase=JobPhase.ENROLLING.value,
        joined=0,
    )
    # a row comes back if it is new; the row count of an insertion is not always known
    new = statement.on_conflict_do_nothing().returning(schema.jobs.c.id)
    return db.execute(new).first() is not None


def find_job(db: Connection, job: str) -> JobRecord:
    """Return a job.

    Raises:
        UnknownJob
    """
    row = db.execute(all_jobs().where(schema.jobs.c.id == job)).one_or_none()
    if row is None:
        raise UnknownJob
    return job_record(row)


def knows_job(db: Connection, job: str) -> bool:
    """Tell whether the job was submitted."""
    columns = schema.jobs.c
    return db.execute(select(columns.id).where(columns.id == job)).first() is not None


def open_jobs(db: Connection) -> Sequence[JobRecord]:
    """Return the jobs that have not ended."""
    phases = [JobPhase.ENROLLING.value, JobPhase.RUNNING.value]
    return [
        job_record(row) for row in db.execute(all_jobs().where(schema.jobs.c.phase.in_(phases)))
    ]


def list_jobs(db: Connection, phase: JobPhase | None) -> Sequence[tuple[str, JobPhase]]:
    """Return all jobs, or those in `phase`, with their phases."""
    columns = schema.jobs.c
    query = select(columns.id, columns.phase).order_by(columns.id)
    if phase is not None:
        query = query.where(columns.phase == phase.value)
    return [(row.id, JobPhase(row.phase)) for row in db.execute(query)]


def add_joins(db: Connection, job: str, joins: Sequence[Signed[Join]]) -> None:
    """Store the joins of clients that have not joined the job yet."""
    rows = [
        {"job": job, "client": signed.body.client, "document": signed.encode()} for signed in joins
    ]
    db.execute(schema.joins.insert(), rows)
    columns = schema.jobs.c
    more = schema.jobs.update().where(columns.id == job).values(joined=columns.joined + len(rows))
    db.execute(more)


def joined_clients(db: Connection, job: str) -> Sequence[int]:
    """Return the clients that joined a job and have not left it."""
    columns, leaves = schema.joins.c, schema.leaves.c
    left = select(leaves.client).where(leaves.job == job)
    query = select(columns.client).where(columns.job == job, columns.client.not_in(left))
    return db.execute(query).scalars().all()


def fix_population(db: Connection, job: str, population: str) -> None:
    """Close enrolment: the job runs, with this population for all its rounds."""
    move_job(db, job, JobEvent.POPULATION_FIXED, population=population)


def fail_job(
    db: Connection,
    job: str,
    event: JobEvent,
    reason: str,
    *,
    at: datetime,
    abandoned_round: str | None = None,
    abandonment: Signed[Abandonment] | None = None,
) -> None:
    """End a job without a posterior, and with it a round that released nothing.

    Raises:
        LedgerBroken
    """
    move_job(db, job, event, reason=reason)
    if abandoned_round is not None:
        lose_round(db, abandoned_round, abandonment, at=at)


def lose_round(
    db: Connection, round_id: str, abandonment: Signed[Abandonment] | None, *, at: datetime
) -> None:
    """End a round that released nothing; its job goes on.

    One that clients were never told of is given back: none of them can have answered it. Not where
    participation is hidden, for there the first round pays for all.

    Raises:
        LedgerBroken
    """
    outcome = None if abandonment is None else abandonment.encode()
    unfinished = {Phase.ANNOUNCED, Phase.COLLECTING}
    before = _move_round(db, round_id, unfinished, Phase.ABANDONED, outcome)
    if before is Phase.ANNOUNCED and not _hides_participation(db, round_id):
        schema.ledger.give_back(db, round_id, at=at)


def add_round(db: Connection, signed: Signed[RoundSpec], ledger: Ledger, *, at: datetime) -> None:
    """Store a round that is about to be announced, and charge for it, at once.

    Raises:
        WrongPhase: the job has ended.
        LedgerBroken
    """
    if find_job(db, signed.body.job).phase is not JobPhase.RUNNING:
        raise WrongPhase("a round of a job that does not run")
    db.execute(
        schema.rounds.insert().values(
            id=signed.digest,
            job=signed.body.job,
            number=signed.body.number,
            spec=signed.encode(),
            phase=Phase.ANNOUNCED.value,
        )
    )
    ledger.charge(db, signed.body, at=at)


def open_round(db: Connection, round_id: str) -> None:
    """Note that every service accepted the round: clients may take part."""
    _move_round(db, round_id, {Phase.ANNOUNCED}, Phase.COLLECTING)


def publish_round(
    db: Connection, result: Signed[Result], partial_sums: Sequence[Signed[PartialSum]]
) -> None:
    """Store a round's verified result, with the partial sums that show that it is right."""
    round_id = result.body.round
    _move_round(db, round_id, {Phase.COLLECTING}, Phase.PUBLISHED, result.encode())
    rows = [
        {"round": round_id, "node": each.body.node, "document": each.encode()}
        for each in partial_sums
    ]
    db.execute(schema.partial_sums.insert(), rows)


def newest_rounds(
    db: Connection, job: str, *, count: int
) -> tuple[dict[Phase, int], Sequence[RoundRecord]]:
    """Return how many rounds of a job are in each phase, and its `count` newest ones in order."""
    columns = schema.rounds.c
    counted = select(columns.phase, func.count()).where(columns.job == job)
    counts = {Phase(phase): size for phase, size in db.execute(counted.group_by(columns.phase))}
    query = select(columns.id, columns.number, columns.spec, columns.phase)
    rows = db.execute(query.where(columns.job == job).order_by(columns.number.desc()).limit(count))
    newest = [RoundRecord(row.id, row.number, row.spec, Phase(row.phase)) for row in rows]
    return counts, newest[::-1]


def filed_rounds(db: Connection, job: str) -> Sequence[FiledRound]:
    """Return a job's rounds with their documents, in order; they may be many and large."""
    columns = schema.rounds.c
    query = select(columns.spec, columns.phase, columns.outcome).where(columns.job == job)
    return [
        FiledRound(row.spec, Phase(row.phase), row.outcome)
        for row in db.execute(query.order_by(columns.number))
    ]


def find_spec(db: Connection, job: str, number: int) -> tuple[JobRecord, bytes | None]:
    """Return a job with the signed spec of its newest round that every service accepted.

    None if that has a number below `number`: the one asked for may come yet.

    Raises:
        UnknownJob
    """
    columns = schema.rounds.c
    accepted = [Phase.COLLECTING.value, Phase.PUBLISHED.value]
    here = (columns.job == job) & (columns.number >= number) & columns.phase.in_(accepted)
    query = select(columns.spec).where(here).order_by(columns.number.desc()).limit(1)
    return find_job(db, job), db.execute(query).scalar_one_or_none()


def all_jobs() -> Any:
    """Return SQL for the columns of `job_record` of every job."""
    jobs = schema.jobs.c
    return select(jobs.id, jobs.request, jobs.phase, jobs.joined, jobs.population, jobs.reason)


def job_record(row: Any) -> JobRecord:
    """Return the record that a row of `all_jobs` holds."""
    job, request, phase, *rest = row
    return JobRecord(job, request, JobPhase(phase), *rest)


def move_job(db: Connection, job: str, event: JobEvent, **values: object) -> None:
    """Take a job to the phase that follows on `event`; raise `WrongPhase` if it has ended."""
    before = find_job(db, job).phase
    following = after(JOB, before, event)
    _swap(db, schema.jobs, job, before, phase=following.value, **values)


def _move_round(
    db: Connection,
    round_id: str,
    expected: set[Phase],
    following: Phase,
    outcome: bytes | None = None,
) -> Phase:
    """Move a round on and return the phase that it left.

    Raises:
        WrongPhase: it is in none that was expected: its job was withdrawn meanwhile.
    """
    columns = schema.rounds.c
    before = Phase(db.execute(select(columns.phase).where(columns.id == round_id)).scalar_one())
    if before not in expected:
        raise WrongPhase(f"a round that is {before} cannot be {following}")
    _swap(db, schema.rounds, round_id, before, phase=following.value, outcome=outcome)
    return before


def _swap(
    db: Connection, table: Table, row_id: str, before: JobPhase | Phase, **values: object
) -> None:
    current = (table.c.id == row_id) & (table.c.phase == before.value)
    if db.execute(table.update().where(current).values(**values)).rowcount != 1:
        raise RuntimeError("another process runs this trainer's jobs; run only one")


def _hides_participation(db: Connection, round_id: str) -> bool:
    encoded = db.execute(select(schema.rounds.c.spec).where(schema.rounds.c.id == round_id))
    return decode(encoded.scalar_one(), RoundSpec).body.hidden is not None
