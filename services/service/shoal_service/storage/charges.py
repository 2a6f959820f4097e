"""What rounds were charged, by a service's journal, and what clients have spent by it.

A charge and its return are entries about a round, which nobody signs: whatever the service signs
afterwards names the hash of an entry behind them. Price and population are those of the round's
spec, which is on file.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, select

from shoal_protocol.journal import EMPTY, Head, Link
from shoal_protocol.privacy.accounting import Balances
from shoal_protocol.rounds.attestations import CHARGE, RETURN, Charge, charge_body
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.encoding import parse_canonical_json
from shoal_protocol.wire.errors import LedgerBroken
from shoal_protocol.wire.phases import Phase
from shoal_service.storage.journal import JournalTables, JournalWriter, read_entry

_MOST_ENTRIES: Final = (1 << 63) - 1  # no bound


class Charged(NamedTuple):
    """An entry by which a round is charged to its population, or given back."""

    head: Head
    kind: str
    job_rounds: int
    """How often the job was charged up to this charge, or to the charge that is given back."""
    spec: RoundSpec

    def apply_to(self, balances: Balances) -> None:
        """Add the charge to these balances, or take it back from them."""
        change = balances.add if self.kind == CHARGE else balances.take_back
        change(self.spec.clients(), self.spec.cost)

    def shown(self) -> dict[str, Any]:
        """Return the entry as it is listed."""
        spec = self.spec
        return {
            "number": self.head.number,
            "hash": self.head.hash,
            "kind": self.kind,
            "round": spec.digest,
            "job": spec.job,
            "job_rounds": self.job_rounds,
            "clients": spec.population_size,
            "mu": spec.mu,
            "epsilon": spec.epsilon,
        }


class Charges:
    """The charges in a journal, whose rounds are on file in a table."""

    def __init__(self, journal: JournalTables, rounds: Table) -> None:
        """Read entries of `journal`, and the specs and phases of `rounds`."""
        self.journal, self.rounds = journal, rounds

    def give_back(self, writer: JournalWriter, round_id: str) -> None:
        """Give a round's charge back, for it can no longer cost anyone.

        Raises:
            LedgerBroken: it was not charged.
        """
        charge = self.of_round(writer.db, round_id)
        writer.note(RETURN, round_id, charge_body(charge.job_rounds))

    def of_round(self, db: Connection, round_id: str) -> Charge:
        """Return the entry that charges a round.

        Raises:
            LedgerBroken: there is none, or it is not one that this program wrote.
        """
        entries = self.journal.entries
        query = select(entries).where(entries.c.kind == CHARGE, entries.c.subject == round_id)
        row = db.execute(query).one_or_none()
        if row is None:
            raise LedgerBroken("a round on file is not charged in the journal")
        link: Link = read_entry(row).link
        return Charge(entry=link, salt=row.salt, job_rounds=_job_rounds(row))

    def after(self, db: Connection, number: int, *, most: int = _MOST_ENTRIES) -> Iterator[Charged]:
        """Return each charge and return beyond an entry, in order, up to `most`.

        Raises:
            LedgerBroken: a row is not one that this program wrote, or its round is not on file.
        """
        here = self.journal.entries.c
        for row in db.execute(self._in_order(here.number > number).limit(most)):
            yield self._read(db, row)

    def of_job(self, db: Connection, job: str, *, through: int | None = None) -> Iterator[Charged]:
        """Return each charge and return of a job up to the entry numbered `through`, in order.

        Raises:
            LedgerBroken: as `after`.
        """
        here = self.journal.entries.c
        rounds = select(self.rounds.c.id).where(self.rounds.c.job == job)
        query = self._in_order(here.subject.in_(rounds))
        if through is not None:
            query = query.where(here.number <= through)
        for row in db.execute(query):
            yield self._read(db, row)

    def _in_order(self, chosen: ColumnElement[bool]) -> Select[Any]:
        entries = self.journal.entries
        query = select(entries).where(entries.c.kind.in_([CHARGE, RETURN]), chosen)
        return query.order_by(entries.c.number)

    def _read(self, db: Connection, row: Row[Any]) -> Charged:
        head = Head(row.number, read_entry(row).hash)
        query = select(self.rounds.c.spec).where(self.rounds.c.id == row.subject)
        encoded = db.execute(query).scalar_one_or_none()
        spec = None if encoded is None else decode(encoded, RoundSpec).body
        if spec is None or spec.digest != row.subject:
            raise LedgerBroken(f"journal entry {head.number} is of a round not on file")
        return Charged(head, row.kind, _job_rounds(row), spec)

    def check_rounds(self, db: Connection) -> None:
        """Check that each round on file is charged, and given back only if it was abandoned.

        Raises:
            LedgerBroken
        """
        here, rounds = self.journal.entries.c, self.rounds.c
        of_round = select(here.number).where(here.subject == rounds.id)
        is_charged = of_round.where(here.kind == CHARGE).exists()
        is_returned = of_round.where(here.kind == RETURN).exists()
        if db.execute(select(rounds.id).where(~is_charged).limit(1)).first() is not None:
            raise LedgerBroken("a round on file is not charged in the journal")
        released = is_returned & (rounds.phase != Phase.ABANDONED.value)
        if db.execute(select(rounds.id).where(released).limit(1)).first() is not None:
            raise LedgerBroken("a round is given back that may have released something")


def _job_rounds(row: Row[Any]) -> int:
    return int(parse_canonical_json(row.body)["job_rounds"])


class Ledger:
    """What clients have spent by the charges that this process has read so far.

    Both the charges and each client's total are always read from the database: other replicas add
    entries, too, and a commit that seems to fail may yet reach the disk.
    """

    def __init__(self, charges: Charges) -> None:
        """Begin before the first charge."""
        self.charges, self.balances = charges, Balances()
        self.last = EMPTY
        """The charge or return that was read last."""
        self._of_job = Counter[str]()
        self._lines: list[dict[str, Any]] = []

    def follow(self, db: Connection) -> Iterator[Charged]:
        """Count and yield the charges that are new here.

        Raises:
            LedgerBroken: they do not follow from those before, or some are gone.
        """
        if not self.charges.journal.holds(db, self.last):
            raise LedgerBroken("a charge is gone from the journal: the database was set back")
        for charged in self.charges.after(db, self.last.number):
            if charged.kind == CHARGE:
                self._of_job[charged.spec.job] += 1
                if charged.job_rounds != self._of_job[charged.spec.job]:
                    what = f"journal entry {charged.head.number} miscounts the rounds of its job"
                    raise LedgerBroken(what)
            charged.apply_to(self.balances)
            self.last = charged.head
            self._lines.append(charged.shown())
            yield charged

    def page(self, db: Connection, *, after: int, count: int) -> list[dict[str, Any]]:
        """Return up to `count` charges and returns that follow the first `after`.

        Raises:
            LedgerBroken: as `follow`.
        """
        self.catch_up(db)
        return self._lines[after : after + count]

    def catch_up(self, db: Connection) -> None:
        """Count the charges that are new here.

        Raises:
            LedgerBroken: as `follow`.
        """
        for _ in self.follow(db):
            pass

    def verify(self, db: Connection) -> None:
        """Count all charges, and compare them with the rounds on file.

        Raises:
            LedgerBroken: they do not match.
        """
        self.catch_up(db)
        self.charges.check_rounds(db)

    def charge(self, writer: JournalWriter, spec: RoundSpec) -> None:
        """Charge a round to its population; `writer` is locked, and all charges are counted."""
        writer.note(CHARGE, spec.digest, charge_body(self._of_job[spec.job] + 1))
