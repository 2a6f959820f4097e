"""The trainer's ledger as it was followed so far: what every round cost whom, and in all."""

from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection

from shoal_hosting.ledger import LedgerFollower
from shoal_protocol.accounting import Cost
from shoal_protocol.ledger import LedgerEntry
from shoal_protocol.rounds import RoundSpec
from shoal_trainer.schema import ledger


class Line(NamedTuple):
    """An entry, and the most that a client of its population has spent up to it."""

    entry: LedgerEntry
    cumulative: Cost


class Ledger:
    """Charges rounds in one unbroken chain."""

    def __init__(self, name: str) -> None:
        """Begin before the first entry of the ledger of the trainer `name`."""
        self._name = name
        self._follower = LedgerFollower(ledger, name)
        self._lines: list[Line] = []

    def follow(self, db: Connection) -> None:
        """Verify the entries that are new here.

        Raises:
            LedgerBroken: they do not follow from those before, or some are gone.
        """
        for entry, population in self._follower.follow(db):
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
        ledger.charge(db, spec, ledger=self._name, after=self._follower.head, at=at)
