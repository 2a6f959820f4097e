"""The node's ledger, and each client's total charge, both followed from the database.

They are always read from there: other replicas add entries, too, and a commit that seems to fail
may yet reach the disk.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, exists, select

from shoal_compute.schema import documents, ledger, rounds, totals
from shoal_hosting.storage.ledger import (
    Charged,
    FiledRound,
    LedgerFollower,
    check_rounds,
    see_one_state,
)
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.privacy.accounting import Balances, Cap, Cost
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.rounds.attestations import PartialSum
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import LedgerBroken
from shoal_protocol.wire.phases import Phase
from shoal_protocol.wire.service_errors import BudgetExceeded

_JOBS_AT_HAND: Final = 16  # whose balances are in memory: up to 24 MB each, for 2^20 clients


class Ledger:
    """Charges rounds to their clients, in one unbroken chain, up to the consortium's cap."""

    def __init__(self, name: str) -> None:
        """Begin before the first entry of the ledger of the node `name`."""
        self._name = name
        self._follower = LedgerFollower(ledger, name)
        self._by_job: OrderedDict[str, Balances] = OrderedDict()

    def verify(self, db: Connection) -> None:
        """Read all of the ledger, and hold it against the rounds and the own sums on file.

        `db` has not begun to read.

        Raises:
            LedgerBroken: it is not whole, or not that of these rounds.
        """
        see_one_state(db)
        self._follower = LedgerFollower(ledger, self._name)  # a transaction may be tried again
        self._by_job.clear()
        entries = [charged.entry for charged in self._follower.follow(db, lock=False)]
        check_rounds(entries, self._filed(db), self._anchors(db), ledger=self._name)
        self._check_totals(db, entries)

    def _filed(self, db: Connection) -> Iterator[FiledRound]:
        summed = exists().where(documents.c.round == rounds.c.number, self._own_sums)
        query = select(rounds.c.number, rounds.c.phase, summed)
        for number, phase, has_sum in db.execute(query.order_by(rounds.c.number)).all():
            encoded = select(rounds.c.spec).where(rounds.c.number == number)  # may be megabytes
            spec = decode(db.execute(encoded).scalar_one(), RoundSpec).body
            needs_all = spec.threshold == len(spec.compute_nodes)
            may_be = needs_all and not has_sum
            yield FiledRound(spec, phase == Phase.ABANDONED and may_be)

    def _anchors(self, db: Connection) -> list[LedgerEntry]:
        """Return the entry in this node's last sum, whose round was charged after all others'."""
        query = select(documents.c.encoded).where(self._own_sums)
        found = db.execute(query.order_by(documents.c.round.desc()).limit(1)).scalars()
        return [decode(encoded, PartialSum).body.charge for encoded in found]

    def _check_totals(self, db: Connection, entries: Iterable[LedgerEntry]) -> None:
        charged: dict[str, list[str]] = {}
        for entry in entries:
            if entry.kind == "charge":
                charged.setdefault(entry.job, []).append(entry.round)
        for document in db.execute(select(totals.c.document)).scalars():
            total = decode(document, JobTotal).body
            if list(total.rounds) != charged.get(total.job, []):
                raise LedgerBroken("this node has signed that a job had other rounds")

    @property
    def _own_sums(self) -> ColumnElement[bool]:
        kind = PartialSum.model_fields["kind"].default
        return and_(documents.c.kind == kind, documents.c.signer == self._name)

    def follow(self, db: Connection) -> None:
        """Verify and count the entries that are new here; nobody can add one until `db` is done.

        Raises:
            LedgerBroken: they do not follow from those before, or some are gone.
        """
        for charged in self._follower.follow(db):
            if of_job := self._by_job.get(charged.entry.job):
                _count(of_job, charged)

    def charge(self, db: Connection, spec: RoundSpec, *, cap: Cap, at: datetime) -> None:
        """Charge a round, unless a client would be charged beyond `cap`.

        Raises:
            BudgetExceeded, LedgerBroken
        """
        self.follow(db)
        population = spec.clients()
        if self._follower.balances.affording(population, spec.cost, cap) != population:
            raise BudgetExceeded("a client's rounds together would cost more than the policy's cap")
        self._follower.charge(db, spec, at=at)

    def spent_before(self, db: Connection, spec: RoundSpec) -> Cost:
        """Return the most that earlier rounds of its job cost a client whom a round asks.

        The round is the one that was charged last, in `db`.

        Raises:
            LedgerBroken
        """
        of_job = self._by_job.pop(spec.job, None) or self._read_job(db, spec.job)
        self._by_job[spec.job] = of_job  # the one that was used last
        if len(self._by_job) > _JOBS_AT_HAND:
            self._by_job.popitem(last=False)
        return of_job.largest(spec.clients())

    def _read_job(self, db: Connection, job: str) -> Balances:
        of_job = Balances()
        if self._follower.rounds_of(job):  # after a start, or after many other jobs
            for charged in ledger.of_job(db, job, through=self._follower.head.number):
                _count(of_job, charged)
        return of_job


def _count(balances: Balances, charged: Charged) -> None:
    change = balances.add if charged.entry.kind == "charge" else balances.take_back
    change(charged.population, charged.entry.cost)
