"""The trainer's ledger: charges rounds to their clients, and sums up what each was charged."""

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import Connection, ScalarSelect, select

from shoal_hosting.storage.ledger import (
    FiledRound,
    LedgerFollower,
    Line,
    check_rounds,
    see_one_state,
)
from shoal_protocol.certificates.release_certificate import read_certificate
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.phases import Phase
from shoal_trainer.schema import certificates, ledger, rounds


class Ledger:
    """Charges rounds in one unbroken chain."""

    def __init__(self, name: str) -> None:
        """Begin before the first entry of the ledger of the trainer `name`."""
        self._name = name
        self._follower = LedgerFollower(ledger, name)
        self._lines: list[Line] = []

    def verify(self, db: Connection) -> None:
        """Read all of the ledger, and hold it against the rounds and certificates on file.

        `db` has not begun to read.

        Raises:
            LedgerBroken: it is not whole, or not that of these rounds.
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
