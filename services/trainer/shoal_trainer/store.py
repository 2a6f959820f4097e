"""The trainer's transactions, for `StorageThread.run`; each leaves a job in one of its phases.

A phase is compared and swapped: of two transactions from the same phase, the second fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyroaring import BitMap
from sqlalchemy import ColumnElement, Connection, Row, Table, func, select

from shoal_protocol.jobs.job_state import RoundState
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.rounds.attestations import CHARGE, Abandonment, PartialSum, Result, RoundFailure
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.encoding import decode_clients, format_time
from shoal_protocol.wire.errors import UnknownJob, WrongPhase
from shoal_protocol.wire.phases import JOB, JobEvent, JobPhase, Phase, after
from shoal_service.keeping import sortable
from shoal_service.storage.charges import Ledger
from shoal_service.storage.database import insert_new
from shoal_service.storage.journal import JournalWriter
from shoal_studies.study_request import StudyRequest
from shoal_trainer import schema
from shoal_trainer.schema import charges

Charges = Sequence[tuple[BitMap, Cost]]
"""Clients, and what each of them was charged."""


@dataclass(frozen=True)
class JobRecord:
    """A job's state. `population` is a bitmap in base64, once it is fixed."""

    job: str
    request: bytes
    phase: JobPhase
    submitted_at: datetime
    ends_by: datetime
    joined: int
    population: str | None
    reason: str | None
    erased: bool

    @property
    def study(self) -> StudyRequest:
        """Return what the analyst asks for."""
        return decode(self.request, StudyRequest).body

    @property
    def clients(self) -> BitMap:
        """Return the population; it is empty until it is fixed."""
        return BitMap() if self.population is None else decode_clients(self.population)


def add_job(db: Connection, signed: Signed[StudyRequest], *, at: datetime) -> bool:
    """Store a job request that was checked; False if it is known."""
    return insert_new(
        db,
        schema.jobs,
        id=signed.digest,
        request=signed.encode(),
        phase=JobPhase.JOINING.value,
        submitted_at=format_time(at),
        ends_by=signed.body.ends_by.timestamp(),
        erased=False,
        emptied=False,
        joined=0,
    )


def find_job(db: Connection, job: str) -> JobRecord:
    """Return a job.

    Raises:
        UnknownJob
    """
    found = find_jobs(db, schema.jobs.c.id == job)
    if not found:
        raise UnknownJob
    return found[0]


def find_jobs(
    db: Connection, *where: ColumnElement[bool], after: int = 0, count: int | None = None
) -> list[JobRecord]:
    """Return up to `count` of the jobs of which all of this holds, newest first, but `after`."""
    jobs = schema.jobs.c
    query = select(
        *(jobs.id, jobs.request, jobs.phase, jobs.submitted_at, jobs.ends_by),
        *(jobs.joined, jobs.population, jobs.reason, jobs.erased),
    )
    chosen = query.where(*where).order_by(jobs.submitted_at.desc(), jobs.id)
    return [
        JobRecord(
            *(job, request, JobPhase(phase)),
            *(datetime.fromisoformat(submitted_at), datetime.fromtimestamp(ends_by, UTC)),
            *rest,
        )
        for job, request, phase, submitted_at, ends_by, *rest in db.execute(
            chosen.offset(after).limit(count)
        )
    ]


def jobs_in(db: Connection, *phases: JobPhase) -> Sequence[JobRecord]:
    """Return the jobs that are in one of these phases."""
    return find_jobs(db, schema.jobs.c.phase.in_([phase.value for phase in phases]))


def list_jobs(db: Connection, phase: JobPhase) -> Sequence[str]:
    """Return the jobs in `phase`."""
    columns = schema.jobs.c
    query = select(columns.id).where(columns.phase == phase.value).order_by(columns.id)
    return db.execute(query).scalars().all()


End = Signed[Abandonment] | RoundFailure
"""Why a round released nothing: the aggregator's word, or what the trainer found."""


def end_job(
    writer: JournalWriter,
    job: str,
    event: JobEvent,
    reason: str | None = None,
    *,
    lost: tuple[str, End] | None = None,
) -> Charges:
    """End a job without a posterior, and with it a round that released nothing, and why.

    A round that no client was told of is given back. Any other one goes on at the services, and
    what it cost stays charged. Return what does.

    Raises:
        WrongPhase: it has ended.
        LedgerBroken
    """
    db, columns = writer.db, schema.rounds.c
    move_job(db, job, event, reason=reason)
    if lost is not None:
        lose_round(writer, *lost)
    untold = (columns.job == job) & (columns.phase == Phase.ANNOUNCED.value)
    for round_id in db.execute(select(columns.id).where(untold)).scalars().all():
        lose_round(writer, round_id, None)
    return kept_charges(db, job)


def lose_round(writer: JournalWriter, round_id: str, end: End | None) -> None:
    """End a round that released nothing; one whose job ended before it began has no `end`.

    One that clients were never told of is given back: none of them can have answered it.

    Raises:
        LedgerBroken
    """
    failure = end.body.reason if isinstance(end, Signed) else end
    values = _outcome(end) if isinstance(end, Signed) else {}
    values["failure"] = None if failure is None else failure.model_dump_json()
    unfinished = {Phase.ANNOUNCED, Phase.COLLECTING}
    before = _move_round(writer.db, round_id, unfinished, Phase.ABANDONED, **values)
    if before is Phase.ANNOUNCED:
        charges.give_back(writer, round_id)


def add_round(writer: JournalWriter, signed: Signed[RoundSpec], ledger: Ledger) -> None:
    """Store a round to be announced, and its charge.

    Raises:
        WrongPhase: the job has ended.
        LedgerBroken
    """
    _check_running(writer.db, signed.body.job)
    writer.db.execute(
        schema.rounds.insert().values(
            id=signed.digest,
            job=signed.body.job,
            number=signed.body.number,
            spec=signed.encode(),
            deadline=format_time(signed.body.deadline),
            asked=signed.body.population_size,
            phase=Phase.ANNOUNCED.value,
        )
    )
    writer.lock()
    ledger.catch_up(writer.db)
    ledger.charge(writer, signed.body)


def open_round(db: Connection, round_id: str) -> None:
    """Note that every service accepted the round: clients may take part."""
    _move_round(db, round_id, {Phase.ANNOUNCED}, Phase.COLLECTING)


def publish_round(
    db: Connection, result: Signed[Result], partial_sums: Sequence[Signed[PartialSum]]
) -> None:
    """Store a round's verified result, with the partial sums that show that it is right.

    Raises:
        WrongPhase: its job was withdrawn meanwhile.
    """
    round_id, columns = result.body.round, schema.rounds.c
    job = db.execute(select(columns.job).where(columns.id == round_id)).scalar_one()
    _check_running(db, job)
    told = {**_outcome(result), "cohort": result.body.cohort_size}
    _move_round(db, round_id, {Phase.COLLECTING}, Phase.PUBLISHED, **told)
    rows = [
        {
            "round": round_id,
            "node": each.body.node,
            "place": sortable(each.body),
            "document": each.encode(),
        }
        for each in partial_sums
    ]
    db.execute(schema.partial_sums.insert(), rows)


def _outcome(signed: Signed[Result] | Signed[Abandonment]) -> dict[str, Any]:
    return {
        "outcome": signed.encode(),
        "decided_by": signed.signer,
        "place": sortable(signed.body),
    }


def _check_running(db: Connection, job: str) -> None:
    if find_job(db, job).phase is not JobPhase.RUNNING:
        raise WrongPhase("the job does not run any more")


def newest_rounds(
    db: Connection, job: str, *, count: int
) -> tuple[dict[str, int], tuple[RoundState, ...]]:
    """Return how many rounds of a job are in each phase, and its `count` newest ones in order."""
    columns = schema.rounds.c
    counted = select(columns.phase, func.count()).where(columns.job == job)
    counts = {phase: size for phase, size in db.execute(counted.group_by(columns.phase))}
    query = select(
        *(columns.id.label("round"), columns.number, columns.phase),
        *(columns.deadline, columns.asked, columns.cohort, columns.failure),
    )
    rows = db.execute(query.where(columns.job == job).order_by(columns.number.desc()).limit(count))
    newest = [
        RoundState.model_validate(
            {**row, "failure": row["failure"] and RoundFailure.model_validate_json(row["failure"])}
        )
        for row in rows.mappings()
    ]
    return counts, tuple(reversed(newest))


FiledRows = Sequence[Row[str, bytes, str, bytes | None]]
"""Rounds' ids, signed specs, phases and, once they ended, the aggregator's signed word."""


def filed_rounds(db: Connection, job: str) -> FiledRows:
    """Return a job's rounds in order; they may be many and large."""
    columns = schema.rounds.c
    query = select(columns.id, columns.spec, columns.phase, columns.outcome)
    return db.execute(query.where(columns.job == job).order_by(columns.number)).all()


def newest_of(db: Connection, service: str) -> bytes | None:
    """Return the newest partial sum, result or abandonment on file in another one's journal."""
    columns, sums = schema.rounds.c, schema.partial_sums.c
    of_node = select(sums.document).where(sums.node == service).order_by(sums.place.desc())
    decided = select(columns.outcome).where(columns.decided_by == service)
    of_aggregator = decided.order_by(columns.place.desc())
    found = (db.execute(query.limit(1)).scalar() for query in (of_node, of_aggregator))
    return next((each for each in found if each is not None), None)


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


def move_job(db: Connection, /, job: str, event: JobEvent, **values: object) -> None:
    """Take a job to the phase that follows on `event`; raise `WrongPhase` if it has ended."""
    before = find_job(db, job).phase
    following = after(JOB, before, event)
    _swap(db, schema.jobs, job, before, phase=following.value, **values)


def _move_round(
    db: Connection,
    round_id: str,
    expected: set[Phase],
    following: Phase,
    **values: object,
) -> Phase:
    """Move a round on and return the phase that it left.

    Raises:
        WrongPhase: it is in none that was expected: its job was withdrawn meanwhile.
    """
    columns = schema.rounds.c
    before = Phase(db.execute(select(columns.phase).where(columns.id == round_id)).scalar_one())
    if before not in expected:
        raise WrongPhase(f"a round that is {before} cannot be {following}")
    _swap(db, schema.rounds, round_id, before, phase=following.value, **values)
    return before


def _swap(
    db: Connection, table: Table, row_id: str, before: JobPhase | Phase, **values: object
) -> None:
    current = (table.c.id == row_id) & (table.c.phase == before.value)
    if db.execute(table.update().where(current).values(**values)).rowcount != 1:
        raise RuntimeError("another process runs this trainer's jobs; run only one")


def kept_charges(db: Connection, job: str) -> Charges:
    """Return the clients and costs that a job's rounds charged, except returned charges.

    Raises:
        LedgerBroken
    """
    kept = dict[str, tuple[BitMap, Cost]]()
    for each in charges.of_job(db, job):
        if each.kind == CHARGE:
            kept[each.spec.digest] = (each.spec.clients(), each.spec.cost)
        else:
            del kept[each.spec.digest]
    return [*kept.values()]


def find_certificate(db: Connection, job: str) -> bytes | None:
    """Return the certificate of a job, compressed, if it has one."""
    columns = schema.certificates.c
    return db.execute(select(columns.document).where(columns.job == job)).scalar_one_or_none()
