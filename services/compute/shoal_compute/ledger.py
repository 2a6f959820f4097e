"""The node's ledger as this process follows it, and what each client was charged by it.

Both are only ever read from the database, which replicas add to as well, and a commit that seems
to fail may yet reach the disk.
"""

from datetime import datetime

from sqlalchemy import Connection

from shoal_compute.schema import ledger
from shoal_hosting.ledger import LedgerFollower
from shoal_protocol.accounting import Cap
from shoal_protocol.errors import BudgetExceeded
from shoal_protocol.rounds import RoundSpec


class Ledger:
    """Charges rounds to their clients, in one unbroken chain, up to the consortium's cap."""

    def __init__(self, name: str) -> None:
        """Begin before the first entry of the ledger of the node `name`."""
        self._name = name
        self._follower = LedgerFollower(ledger, name)

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
        """
        self.follow(db)
        population = spec.clients()
        if self._follower.balances.affording(population, spec.cost, cap) != population:
            raise BudgetExceeded("a client's rounds together would cost more than the policy's cap")
        ledger.charge(db, spec, ledger=self._name, after=self._follower.head, at=at)
