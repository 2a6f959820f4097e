"""A service's ledger in its database: hash-chained rows that only grow.

A head row with the last entry's number and digest is locked from reading the ledger to adding to
it, so that whoever holds the lock knows all of it, and a place is given once, whichever replica
asks for it.
"""

import base64
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pyroaring import BitMap
from sqlalchemy import (
    CheckConstraint,
    Column,
    Connection,
    Double,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    UniqueConstraint,
    bindparam,
    event,
    select,
    update,
)

from shoal_protocol.privacy.accounting import Balances, Cost
from shoal_protocol.privacy.job_costs import epsilon_at
from shoal_protocol.privacy.ledger import EMPTY, Chain, Head, LedgerEntry, population_digest
from shoal_protocol.privacy.ledger_checks import charge_of, check_anchors, check_charge
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.encoding import format_time
from shoal_protocol.wire.errors import LedgerBroken, MalformedDocument
from shoal_protocol.wire.service_errors import WrongCharge
from shoal_service.storage.database import Bytes, only_changes, only_grows

RESTORE: Final = "restore the database from where its ledger is whole"


# each takes a millisecond, and anybody may ask again and again
_KEPT_EPSILONS: Final = 1 << 16
_MOST_ENTRIES: Final = (1 << 63) - 1  # no bound


class Charged(NamedTuple):
    """An entry of a ledger, and the clients that it charges."""

    entry: LedgerEntry
    population: BitMap


class Line(NamedTuple):
    """An entry, and the most that a client of its population has spent up to it."""

    entry: LedgerEntry
    cumulative: Cost

    def shown(self, delta: float | None) -> dict[str, Any]:
        """Return the line as it is served; its epsilon is at `delta`, None where that is infinite.

        Without `delta` it is infinite.
        """
        epsilon = math.inf if delta is None else _epsilon(self.cumulative, delta)
        return self.entry.model_dump(mode="json") | {
            "digest": self.entry.digest,
            "cumulative_mu": self.cumulative.mu,
            "cumulative_epsilon": epsilon if math.isfinite(epsilon) else None,
            "delta": delta,
        }


@lru_cache(_KEPT_EPSILONS)
def _epsilon(cost: Cost, delta: float) -> float:
    return epsilon_at(delta, cost)


class LedgerTables:
    """The two tables of a ledger, and the statements that read them and add to them."""

    def __init__(self, metadata: MetaData) -> None:
        """Add the tables to `metadata`."""
        self.entries = Table(
            "ledger",
            metadata,
            Column("number", Integer, primary_key=True, autoincrement=False),  # without gaps
            Column("ledger", String(63), nullable=False),  # the party's name
            Column("previous", String(64), nullable=False),
            Column("kind", String(8), nullable=False),
            Column("round", String(64), nullable=False),
            Column("job", String(64), nullable=False),
            Column("job_rounds", Integer, nullable=False),  # charged so far, with this one
            Column("population", Bytes, nullable=False),  # canonical Roaring bitmap
            Column("mu", Double, nullable=False),
            Column("epsilon", Double),  # NULL is infinite
            Column("at", String(24), nullable=False),
            Column("digest", String(64), nullable=False),  # of all of the above
            UniqueConstraint("round", "kind"),
        )
        self.head = Table(
            "ledger_head",
            metadata,
            Column("one", Integer, CheckConstraint("one = 1"), primary_key=True),
            Column("number", Integer, nullable=False),
            Column("digest", String(64), nullable=False),
        )
        # built once: building a statement takes longer than SQLite takes to carry it out
        here = self.entries.c
        self._head = select(self.head.c.number, self.head.c.digest)
        self._locked = self._head.with_for_update()
        in_order = select(self.entries).order_by(here.number)
        self._after = in_order.where(here.number > bindparam("after")).limit(bindparam("most"))
        of_round = here.round == bindparam("of_round")
        self._new = self.entries.insert()
        newest: dict[str, Any] = {"number": bindparam("last"), "digest": bindparam("last_digest")}
        self._newest = update(self.head).values(newest)
        self._charge = select(self.entries).where(of_round, here.kind == "charge")
        only_grows(self.entries)
        only_changes(self.head)
        event.listen(self.head, "after_create", _begin)

    def hold(self, db: Connection, *, lock: bool = True) -> Head:
        """Lock the ledger against new entries until `db` is done; return the last entry.

        Without `lock` the entry is only read, for a transaction that sees one state throughout.

        Raises:
            LedgerBroken: the head row is missing.
        """
        row = db.execute(self._locked if lock else self._head).one_or_none()
        if row is None:
            raise LedgerBroken("the ledger's head is gone")
        return Head(*row)

    def holds(self, db: Connection, head: Head) -> bool:
        """Tell whether `head` is or was the ledger's last entry."""
        columns = self.entries.c
        query = select(columns.digest).where(columns.number == head.number)
        return head == EMPTY or db.execute(query).scalar_one_or_none() == head.digest

    def after(self, db: Connection, number: int, *, most: int = _MOST_ENTRIES) -> Iterator[Charged]:
        """Return each entry beyond `number`, in order, up to `most`; that they follow is unchecked.

        Raises:
            LedgerBroken: a row is not one that this program wrote.
        """
        return map(_read, db.execute(self._after, {"after": number, "most": most}))

    def of_job(self, db: Connection, job: str, *, through: int) -> Iterator[Charged]:
        """Return a job's entries up to the one that is numbered `through`, in order.

        Raises:
            LedgerBroken: as `after`.
        """
        columns = self.entries.c
        return map(
            _read,
            db.execute(
                select(self.entries)
                .where(columns.job == job, columns.number <= through)
                .order_by(columns.number)
            ),
        )

    def charge_of(self, db: Connection, round_id: str) -> LedgerEntry:
        """Return the entry that charged a round.

        Raises:
            LedgerBroken: as `after`, or there is none.
        """
        return self._charge_of(db, round_id)[0]

    def charge(
        self,
        db: Connection,
        spec: RoundSpec,
        *,
        ledger: str,
        after: Head,
        at: datetime,
        job_rounds: int,
    ) -> None:
        """Charge a round to its population, the job's `job_rounds`-th that is charged.

        The caller holds the ledger, whose head is `after`.
        """
        entry = charge_of(spec, ledger=ledger, after=after, at=at, job_rounds=job_rounds)
        self._append(db, entry, base64.b64decode(spec.population))

    def give_back(self, db: Connection, round_id: str, *, at: datetime) -> None:
        """Give a round's charge back, for it can no longer cost anyone.

        Raises:
            LedgerBroken: as `charge_of`.
        """
        after = self.hold(db)
        entry, population = self._charge_of(db, round_id)
        self._append(db, entry.returned(after=after, at=at), population)

    def _charge_of(self, db: Connection, round_id: str) -> tuple[LedgerEntry, bytes]:
        row = db.execute(self._charge, {"of_round": round_id}).one_or_none()
        if row is None:
            raise LedgerBroken("a round on file is not in the ledger")
        return _read(row).entry, row.population

    def _append(self, db: Connection, entry: LedgerEntry, population: bytes) -> None:
        columns = entry.model_dump(exclude={"population", "clients", "at"})
        columns |= {"population": population, "at": format_time(entry.at), "digest": entry.digest}
        db.execute(self._new, columns)
        db.execute(self._newest, {"last": entry.number, "last_digest": entry.digest})


class LedgerFollower:
    """A ledger as read by this process so far, and the clients' `balances` by it."""

    def __init__(self, tables: LedgerTables, name: str) -> None:
        """Begin before the first entry of the ledger of the party `name`."""
        self._tables = tables
        self._name = name
        self._chain = Chain()
        self.balances = Balances()

    def rounds_of(self, job: str) -> int:
        """Return how many rounds of a job were charged, those that were given back too."""
        return self._chain.rounds_of(job)

    @property
    def head(self) -> Head:
        """Return the last entry that was read."""
        return self._chain.head

    def charge(self, db: Connection, spec: RoundSpec, *, at: datetime) -> None:
        """Charge a round to its population, all entries before having been followed in `db`."""
        self._tables.charge(
            db,
            spec,
            ledger=self._name,
            after=self.head,
            at=at,
            job_rounds=self.rounds_of(spec.job) + 1,
        )

    def follow(self, db: Connection, *, lock: bool = True) -> Iterator[Charged]:
        """Verify and yield the entries that are new here; nobody can add one until `db` is done.

        `lock` is as in `LedgerTables.hold`.

        Raises:
            LedgerBroken: they do not follow from those before, or some are gone.
        """
        head = self._tables.hold(db, lock=lock)
        for charged in self._tables.after(db, self._chain.head.number):
            if charged.entry.ledger != self._name:
                raise LedgerBroken(f"the ledger in the database is not that of {self._name}")
            try:
                self._chain.follow(charged.entry)
            except MalformedDocument as error:
                raise LedgerBroken(str(error)) from error
            if charged.entry.kind == "charge":
                self.balances.add(charged.population, charged.entry.cost)
            else:
                self.balances.take_back(charged.population, charged.entry.cost)
            yield charged
        if head != self._chain.head:
            raise LedgerBroken("the ledger does not end where it did: entries were removed")


def _begin(head: Table, connection: Connection, **_: object) -> None:
    connection.execute(head.insert().values(one=1, number=EMPTY.number, digest=EMPTY.digest))


def _read(row: Row[Any]) -> Charged:
    """Build an entry from all columns of its row, so that any that was changed shows."""
    try:
        population = BitMap.deserialize(row.population)
        entry = LedgerEntry(
            ledger=row.ledger,
            number=row.number,
            previous=row.previous,
            kind=row.kind,
            round=row.round,
            job=row.job,
            job_rounds=row.job_rounds,
            population=population_digest(base64.b64encode(row.population).decode()),
            clients=len(population),
            mu=row.mu,
            epsilon=row.epsilon,
            at=row.at,
        )
        if entry.digest != row.digest:
            raise ValueError("the row is not the entry of which it has the digest")
    except (ValueError, IndexError, TypeError):  # of the bitmap, or of a field
        raise LedgerBroken(
            f"entry {row.number} of the ledger is not one that this program wrote"
        ) from None
    return Charged(entry, population)


_DIGITS: Final = 12  # enough to tell rounds apart


class FiledRound(NamedTuple):
    """A round on file, and whether its charge may have been given back."""

    spec: RoundSpec
    returnable: bool


def see_one_state(db: Connection) -> None:
    """Have a transaction that has not begun to read see one state of the database throughout.

    Nobody is kept from adding meanwhile. On SQLite every transaction of ours sees one state.
    """
    if db.dialect.name == "postgresql":
        db.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def check_rounds(
    entries: Sequence[LedgerEntry],
    rounds: Iterable[FiledRound],
    anchors: Iterable[LedgerEntry],
    *,
    ledger: str,
) -> None:
    """Check that a verified ledger charges each of `rounds` its price, and no other round.

    `anchors` are entries of it in documents that its party signed; each stands for all before it.

    Raises:
        LedgerBroken
    """
    charges = {each.round: each for each in entries if each.kind == "charge"}
    returned = {each.round for each in entries if each.kind == "return"}
    for spec, returnable in rounds:
        name = f"round {spec.digest[:_DIGITS]}"
        entry = charges.pop(spec.digest, None)
        if entry is None:
            raise LedgerBroken(f"{name} is on file and not in the ledger: entries were removed")
        try:
            check_charge(entry, spec, node=ledger)
        except WrongCharge:
            raise LedgerBroken(
                f"ledger entry {entry.number} is not what {name} on file costs"
            ) from None
        if spec.digest in returned and not returnable:
            raise LedgerBroken(f"the ledger gives {name} back, which may have released something")
    for entry in charges.values():
        raise LedgerBroken(f"ledger entry {entry.number} charges a round that is not on file")
    try:
        check_anchors(entries, anchors)
    except MalformedDocument as error:
        raise LedgerBroken(str(error)) from None
