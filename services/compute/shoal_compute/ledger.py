"""The node's ledger as this process follows it: its chain, and what each client was charged.

Both are only ever read from the database, which replicas add to as well, and a commit that seems
to fail may yet reach the disk.
"""

from datetime import datetime

from sqlalchemy import Connection

from shoal_compute.charges import charge, charges_after, hold_charges
from shoal_protocol.accounting import Cap
from shoal_protocol.balances import Balances
from shoal_protocol.errors import BudgetExceeded, LedgerBroken, MalformedDocument
from shoal_protocol.ledger import Chain, Head
from shoal_protocol.rounds import RoundSpec


class Ledger:
    """Charges rounds to their clients, in one unbroken chain, up to the consortium's cap."""

    def __init__(self, name: str) -> None:
        """Begin before the first entry of the ledger of the node `name`."""
        self._name = name
        self._chain = Chain()
        self._balances = Balances()

    def follow(self, db: Connection) -> Head:
        """Verify and count the entries that are new here; nobody can add one until `db` is done.

        Raises:
            LedgerBroken: they do not follow from those before, or some are gone.
        """
        head = hold_charges(db)
        for charged in charges_after(db, self._chain.head.number):
            if charged.entry.ledger != self._name:
                raise LedgerBroken(f"the ledger in the database is not that of {self._name}")
            try:
                self._chain.follow(charged.entry)
            except MalformedDocument as error:
                raise LedgerBroken(str(error)) from error
            if charged.entry.kind == "charge":
                self._balances.add(charged.population, charged.entry.cost)
            else:
                self._balances.take_back(charged.population, charged.entry.cost)
        if head != self._chain.head:
            raise LedgerBroken("the ledger does not end where it did: entries were removed")
        return head

    def charge(
        self, db: Connection, round_number: int, spec: RoundSpec, *, cap: Cap, at: datetime
    ) -> None:
        """Charge a round, unless a client would be charged beyond `cap`.

        Raises:
            BudgetExceeded, LedgerBroken
        """
        head = self.follow(db)
        population = spec.clients()
        if self._balances.count_affording(population, spec.cost, cap) < len(population):
            raise BudgetExceeded("a client's rounds together would cost more than the policy's cap")
        charge(db, round_number, spec, ledger=self._name, after=head, at=at)
