"""The node's ledger as this process follows it, and what each client was charged by it.

Both are only ever read from the database, which replicas add to as well, and a commit that seems
to fail may yet reach the disk.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, exists, select

from shoal_compute.schema import documents, ledger, rounds, totals
from shoal_hosting.ledger import LedgerFollower
from shoal_hosting.ledger_checks import FiledRound, check_rounds, see_one_state
from shoal_protocol.accounting import Cap
from shoal_protocol.attestations import PartialSum
from shoal_protocol.documents import decode
from shoal_protocol.errors import BudgetExceeded, LedgerBroken
from shoal_protocol.ledger import LedgerEntry
from shoal_protocol.phases import Phase
from shoal_protocol.prepayment import check_prepaid
from shoal_protocol.rounds import RoundSpec
from shoal_protocol.totals import JobTotal


class Ledger:
    """Charges rounds to their clients, in one unbroken chain, up to the consortium's cap."""

    def __init__(self, name: str) -> None:
        """Begin before the first entry of the ledger of the node `name`."""
        self._name = name
        self._follower = LedgerFollower(ledger, name)

    def verify(self, db: Connection) -> None:
        """Read all of the ledger, and hold it against the rounds and the own sums on file.

        `db` has not begun to read.

        Raises:
            LedgerBroken: it is not whole, or not that of these rounds.
        """
        see_one_state(db)
        self._follower = LedgerFollower(ledger, self._name)  # a transaction may be tried again
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
            may_be = needs_all and spec.hidden is None and not has_sum
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
        for _ in self._follower.follow(db):
            continue

    def charge(self, db: Connection, spec: RoundSpec, *, cap: Cap, at: datetime) -> None:
        """Charge a round, unless a client would be charged beyond `cap`.

        Raises:
            BudgetExceeded, LedgerBroken
            RefusedSpec: it was not paid for by the round that it names.
        """
        self.follow(db)
        check_prepaid(spec, _first(db, spec), earlier=self._follower.rounds_of(spec.job))
        population = spec.clients()
        if self._follower.balances.affording(population, spec.cost, cap) != population:
            raise BudgetExceeded("a client's rounds together would cost more than the policy's cap")
        self._follower.charge(db, spec, at=at)


def _first(db: Connection, spec: RoundSpec) -> RoundSpec | None:
    """Return the round on file that a spec says has paid for it: all on file are charged."""
    if spec.hidden is None or spec.hidden.prepaid_by is None:
        return None
    encoded = select(rounds.c.spec).where(rounds.c.id == spec.hidden.prepaid_by)
    found = db.execute(encoded).scalar_one_or_none()
    return None if found is None else decode(found, RoundSpec).body
