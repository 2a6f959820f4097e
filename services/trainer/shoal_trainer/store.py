"""The trainer's transactions, for `StorageThread.run`; each leaves a job in one of its phases.

A phase is compared and swapped: of two transactions from the same phase, the second fails.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyroaring import BitMap
from sqlalchemy import Connection, ScalarSelect, Table, func, select

from shoal_hosting.storage.database import insert_ignoring
from shoal_hosting.storage.ledger import (
    FiledRound,
    LedgerFollower,
    Line,
    check_rounds,
    see_one_state,
)
from shoal_protocol.certificates.release_certificate import read_certificate
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.jobs.membership import JobWithdrawal, Join, Leave
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.rounds.attestations import Abandonment, PartialSum, Result
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.encoding import decode_clients, encode_clients, format_time
from shoal_protocol.wire.errors import UnknownJob, WrongPhase
from shoal_protocol.wire.phases import JOB, JobEvent, JobPhase, Phase, after
from shoal_trainer import schema
from shoal_trainer.schema import certificates, ledger, rounds


class Ledger:
    """Charges rounds to their clients in one unbroken chain, and sums up each client's charges."""

    def __init__(self, name: str) -> None:
        """Follow the ledger of the trainer `name` from its first entry."""
        self._name = name
        self._follower = LedgerFollower(ledger, name)
        self._lines: list[Line] = []

    def verify(self, db: Connection) -> None:
        """Read the whole ledger, and compare it with the stored rounds and certificates.

        `db` has not begun to read.

        Raises:
            LedgerBroken: it is incomplete, or does not match these rounds.
        """
        see_one_state(db)
        self._follower, self._lines = LedgerFollower(ledger, self._name), []
        self.follow(db, lock=False)
        entries = [line.entry for line in self._lines]
        check_rounds(entries, _filed(db), _anchors(db), ledger=self._name)

    def follow(self, db: Connection, *, lock: bool = True) -> None:
        """Verify the entries that are new here; `lock` is as in `LedgerFollower.follow`.

        Raises:
            LedgerBroken: they do not follow from those before, or some are gone.
        """
        for entry, population in self._follower.follow(db, lock=lock):
            self._lines.append(Line(entry, self._follower.balances.largest(population)))

    def page(self, db: Connection, *, after: int, count: int) -> list[Line]:
        """Return up to `count` entries that follow entry `after`, once all are verified.

        Raises:
            LedgerBroken
        """
        self.follow(db)
        return self._lines[after : after + count]  # they are numbered from 1, without gaps

    def charge(self, db: Connection, spec: RoundSpec, *, at: datetime) -> None:
        """Charge a round to its population.

        Raises:
            LedgerBroken
        """
        self.follow(db)
        self._follower.charge(db, spec, at=at)


def _filed(db: Connection) -> Iterator[FiledRound]:
    for round_id, phase in db.execute(select(rounds.c.id, rounds.c.phase)).all():
        encoded = select(rounds.c.spec).where(rounds.c.id == round_id)  # may be megabytes
        spec = decode(db.execute(encoded).scalar_one(), RoundSpec).body
        yield FiledRound(spec, phase == Phase.ABANDONED)


def last_certified() -> ScalarSelect[str]:
    """Return SQL for the job, of those that have a certificate, that was charged last.

    The ledger is checked by that certificate at each start.
    """
    columns = ledger.entries.c
    certified = columns.job.in_(select(certificates.c.job))
    newest = select(columns.job).where(certified).order_by(columns.number.desc())
    return newest.limit(1).scalar_subquery()


def _anchors(db: Connection) -> list[LedgerEntry]:
    """Return the entries in the certificate that the ledger is checked by, if there is one."""
    query = select(certificates.c.document).where(certificates.c.job == last_certified())
    return [
        round_.charge
        for document in db.execute(query).scalars()
        for round_ in read_certificate(document).body.rounds
    ]


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


@dataclass(frozen=True)
class StoredRound:
    """A round's documents: its signed spec and, once it ended, the aggregator's word."""

    spec: bytes
    phase: Phase
    outcome: bytes | None


def add_job(db: Connection, signed: Signed[StudyRequest], *, at: datetime) -> bool:
    """Store a job request that was checked; False if it is known."""
    statement = insert_ignoring(db)(schema.jobs).values(
        id=signed.digest,
        request=signed.encode(),
        phase=JobPhase.JOINING.value,
        submitted_at=format_time(at),
        ends_by=signed.body.ends_by.timestamp(),
        erased=False,
        emptied=False,
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
    phases = [JobPhase.JOINING.value, JobPhase.RUNNING.value]
    return [
        job_record(row) for row in db.execute(all_jobs().where(schema.jobs.c.phase.in_(phases)))
    ]


def list_jobs(db: Connection, phase: JobPhase) -> Sequence[str]:
    """Return the jobs in `phase`."""
    columns = schema.jobs.c
    query = select(columns.id).where(columns.phase == phase.value).order_by(columns.id)
    return db.execute(query).scalars().all()


def add_joins(db: Connection, job: str, joins: Sequence[tuple[Signed[Join], BitMap]]) -> None:
    """Store the joins of data holders that have not joined the job yet, with the slots counted."""
    rows = [
        {
            "job": job,
            "holder": signed.body.holder,
            "slots": encode_clients(slots),
            "document": signed.encode(),
        }
        for signed, slots in joins
    ]
    db.execute(schema.joins.insert(), rows)
    columns, more = schema.jobs.c, sum(len(slots) for _, slots in joins)
    db.execute(schema.jobs.update().where(columns.id == job).values(joined=columns.joined + more))


def joined_slots(db: Connection, job: str) -> dict[int, BitMap]:
    """Return the data holders that joined a job and have not left it, with the slots counted."""
    columns, leaves = schema.joins.c, schema.leaves.c
    left = select(leaves.holder).where(leaves.job == job)
    query = select(columns.holder, columns.slots)
    rows = db.execute(query.where(columns.job == job, columns.holder.not_in(left)))
    return {holder: decode_clients(slots) for holder, slots in rows}


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

    One that clients were never told of is given back: none of them can have answered it.

    Raises:
        LedgerBroken
    """
    outcome = None if abandonment is None else abandonment.encode()
    unfinished = {Phase.ANNOUNCED, Phase.COLLECTING}
    before = _move_round(db, round_id, unfinished, Phase.ABANDONED, outcome=outcome)
    if before is Phase.ANNOUNCED:
        schema.ledger.give_back(db, round_id, at=at)


def add_round(
    db: Connection,
    signed: Signed[RoundSpec],
    ledger: Ledger,
    *,
    at: datetime,
) -> None:
    """Store a round to be announced, and its charge.

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
            deadline=format_time(signed.body.deadline),
            asked=signed.body.population_size,
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
    told = {"outcome": result.encode(), "cohort": result.body.cohort_size}
    _move_round(db, round_id, {Phase.COLLECTING}, Phase.PUBLISHED, **told)
    rows = [
        {"round": round_id, "node": each.body.node, "document": each.encode()}
        for each in partial_sums
    ]
    db.execute(schema.partial_sums.insert(), rows)


def newest_rounds(
    db: Connection, job: str, *, count: int
) -> tuple[dict[str, int], Sequence[dict[str, Any]]]:
    """Return how many rounds of a job are in each phase, and its `count` newest ones in order."""
    columns = schema.rounds.c
    counted = select(columns.phase, func.count()).where(columns.job == job)
    counts = {phase: size for phase, size in db.execute(counted.group_by(columns.phase))}
    query = select(
        *(columns.id.label("round"), columns.number, columns.phase),
        *(columns.deadline, columns.asked, columns.cohort),
    )
    rows = db.execute(query.where(columns.job == job).order_by(columns.number.desc()).limit(count))
    return counts, [dict(row) for row in rows.mappings()][::-1]


def filed_rounds(db: Connection, job: str) -> Sequence[StoredRound]:
    """Return a job's rounds with their documents, in order; they may be many and large."""
    columns = schema.rounds.c
    query = select(columns.spec, columns.phase, columns.outcome).where(columns.job == job)
    return [
        StoredRound(row.spec, Phase(row.phase), row.outcome)
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
    return select(
        *(jobs.id, jobs.request, jobs.phase, jobs.submitted_at, jobs.ends_by),
        *(jobs.joined, jobs.population, jobs.reason, jobs.erased),
    )


def job_record(row: Any) -> JobRecord:
    """Return the record that a row of `all_jobs` holds."""
    job, request, phase, submitted_at, ends_by, *rest = row
    times = datetime.fromisoformat(submitted_at), datetime.fromtimestamp(ends_by, UTC)
    return JobRecord(job, request, JobPhase(phase), *times, *rest)


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


@dataclass(frozen=True)
class Commitment:
    """The most that a job may cost each client; of an ended job, its real costs by client."""

    job: str
    phase: JobPhase
    population: str | None
    allowed: Cost
    spent: Sequence[tuple[BitMap, Cost]]


def commitments(db: Connection) -> Sequence[Commitment]:
    """Return what every job that has or may have a price commits its clients to."""
    open_phases = {JobPhase.JOINING, JobPhase.RUNNING}
    return [
        Commitment(
            each.job,
            each.phase,
            each.population,
            decode(each.request, StudyRequest).body.privacy.cost,
            () if each.phase in open_phases else kept_charges(db, each.job),
        )
        for each in map(job_record, db.execute(all_jobs()).all())
    ]


def kept_charges(db: Connection, job: str) -> Sequence[tuple[BitMap, Cost]]:
    """Return the clients and costs that a job's rounds charged, except returned charges."""
    ledger = schema.ledger.entries.c
    returned = select(ledger.round).where(ledger.job == job, ledger.kind == "return")
    kept = (ledger.job == job) & (ledger.kind == "charge") & ledger.round.not_in(returned)
    query = select(ledger.population, ledger.mu, ledger.epsilon).where(kept)
    return [
        (BitMap.deserialize(population), Cost.stated(mu, epsilon))
        for population, mu, epsilon in db.execute(query)
    ]


def left_holders(db: Connection, job: str) -> BitMap:
    """Return the data holders that left a job, whether they had joined it or not."""
    columns = schema.leaves.c
    return BitMap(db.execute(select(columns.holder).where(columns.job == job)).scalars())


def add_leaves(
    db: Connection, job: str, leaves: Sequence[Signed[Leave]], *, fewer_joined: int
) -> None:
    """Store the leaves of holders that have not left the job; `fewer_joined` of its slots had."""
    rows = [{"job": job, "holder": each.body.holder, "document": each.encode()} for each in leaves]
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
    phase = find_job(db, job).phase
    if phase is JobPhase.WITHDRAWN:  # its withdrawal may be kept no longer
        return False
    if phase in (JobPhase.FINISHED, JobPhase.FAILED):
        raise WrongPhase(f"the job has {phase} already: what it released and cost stays")
    move_job(db, job, JobEvent.WITHDRAWN)
    db.execute(schema.withdrawals.insert().values(job=job, document=signed.encode()))
    columns = schema.rounds.c
    untold = (columns.job == job) & (columns.phase == Phase.ANNOUNCED.value)
    for round_id in db.execute(select(columns.id).where(untold)).scalars().all():
        lose_round(db, round_id, None, at=at)
    return True


def find_withdrawal(db: Connection, job: str) -> bytes | None:
    """Return the wire form of a job's withdrawal, if there is one."""
    query = select(schema.withdrawals.c.document).where(schema.withdrawals.c.job == job)
    return db.execute(query).scalar_one_or_none()
