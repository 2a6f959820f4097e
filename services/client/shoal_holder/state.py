"""The data holder's state on disk: jobs joined, answers given, their costs, unsent envelopes.

One SQLite file. One transaction debits the slots' cost and stores the bytes to send, before the
first of them is sent. A round of a job is answered only once. The ledger only grows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from pyroaring import BitMap

from shoal_holder import exits, ledger, spending
from shoal_holder.state_file import StateFile
from shoal_hosting.outcome import ACKNOWLEDGED, PENDING
from shoal_protocol.privacy.accounting import NOTHING, Balances, Cost
from shoal_protocol.sharing.envelope import envelope_digest
from shoal_protocol.wire.encoding import decode_clients, encode_clients
from shoal_protocol.wire.errors import LedgerBroken

DELIVERED: Final = "delivered"
FORGOTTEN: Final = "forgotten"
"""Why a job has ended here of which rounds were forgotten, and charged anew."""


@dataclass(frozen=True)
class StoredJob:
    """A job that this data holder takes part in."""

    job: str
    request: bytes
    next_number: int


@dataclass(frozen=True)
class StoredRound:
    """A round in which something may remain to be prepared or sent."""

    round_id: str
    spec: bytes
    request: bytes  # of its job


class State:
    """The data holder's state: what it did and has yet to do. For one thread at a time.

    `outbox` tracks stored envelopes, `crowds.memory` crowd jobs.
    """

    def __init__(
        self,
        path: Path,
        *,
        authority: str,
        accept_loss: str | None = None,
        is_restored: bool = False,
    ) -> None:
        """Open or create the state of a data holder in the consortium of `authority`.

        A file that `is_restored` needs no mark: the Compute nodes tell what it lacks.

        Raises:
            ValueError: as `StateFile`, or the ledger in it was tampered with.
        """
        self.file = StateFile(
            path, authority=authority, accept_loss=accept_loss, is_restored=is_restored
        )
        self._committed: Balances | None = None
        try:
            ledger.verify(self.file)
        except LedgerBroken as error:
            self.file.close()
            whole = "restore the file from where its ledger is whole"
            raise ValueError(f"{path}: {error}; {whole}") from None

    def close(self) -> None:
        """Close the file. Nothing is written: whatever was done is on disk already."""
        self.file.close()

    # Jobs and joins

    def job_is_known(self, job: str) -> bool:
        """Tell whether a job was ever joined, as recorded here or adopted from nodes' charges."""
        known = "SELECT 1 FROM jobs WHERE job = ?1 UNION ALL SELECT 1 FROM adopted WHERE job = ?1"
        return self.file.one(known, job) is not None

    def add_job(self, job: str, request: bytes, *, cost: Cost, slots: BitMap, join: bytes) -> None:
        """Store a job, which may cost each of `slots` `cost`, with the signed join to be sent."""
        self._committed = None
        with self.file.transaction():
            self.file.database.execute(
                "INSERT INTO jobs (job, request, mu, epsilon) VALUES (?, ?, ?, ?)",
                (job, request, cost.mu, cost.stated_epsilon),
            )
            self.file.database.execute(
                "INSERT INTO joins VALUES (?, ?, ?, ?)", (job, encode_clients(slots), join, PENDING)
            )

    def open_jobs(self) -> list[StoredJob]:
        """Return the jobs that we still take part in."""
        rows = self.file.rows(
            "SELECT job, request, (SELECT COALESCE(MAX(number) + 1, 0) FROM rounds"
            " WHERE rounds.job = jobs.job) FROM jobs WHERE ended IS NULL ORDER BY rowid"
        )
        return [StoredJob(*row) for row in rows]

    def pending_joins(self) -> dict[str, bytes]:
        """Return the signed joins of open jobs that nobody has answered, by job."""
        return dict(
            self.file.rows(
                "SELECT job, document FROM joins JOIN jobs USING (job)"
                " WHERE outcome = ? AND ended IS NULL ORDER BY jobs.rowid",
                PENDING,
            )
        )

    def settle_join(self, job: str, outcome: str) -> None:
        """Record the outcome of a join."""
        self._committed = None
        with self.file.transaction():
            self.file.database.execute(
                "UPDATE joins SET outcome = ? WHERE job = ? AND outcome = ?",
                (outcome, job, PENDING),
            )

    def slots_of_job(self, job: str) -> BitMap:
        """Return the slots whose records a job may use; none if the join was refused."""
        found = self.file.one(
            "SELECT slots FROM joins WHERE job = ? AND outcome IN (?, ?)",
            *(job, PENDING, ACKNOWLEDGED),
        )
        return BitMap() if found is None else decode_clients(found[0])

    def end_job(
        self, job: str, reason: str, *, leave: bytes | None = None, withdrawal: bytes | None = None
    ) -> None:
        """Never answer a round of this job again, and erase its unsent envelopes.

        The same transaction stores the signed leave to send, or the withdrawal.
        """
        self._committed = None
        with self.file.transaction():
            self.file.database.execute(
                "UPDATE jobs SET ended = ? WHERE job = ? AND ended IS NULL", (reason, job)
            )
            self._end_rounds(job, reason)
            exits.store(self.file, job, leave, withdrawal)
        self.file.truncate_log()

    # Rounds, the ledger and the outbox

    def add_round(
        self, round_id: str, job: str, number: int, spec: bytes, ended: str | None
    ) -> None:
        """Store the one round that has this number in the job; `ended` if it is not answered.

        The job's earlier rounds are over: the trainer asks for one after the other. Of a job that
        has ended here meanwhile no round is stored.

        Raises:
            sqlite3.IntegrityError: the job already has another round of this number.
        """
        with self.file.transaction():
            if exits.has_ended(self.file, job):
                return
            self._end_rounds(job, "over")
            self.file.database.execute(
                "INSERT INTO rounds (round, job, number, spec, ended) VALUES (?, ?, ?, ?, ?)",
                (round_id, job, number, spec, ended),
            )

    def open_rounds(self) -> list[StoredRound]:
        """Return the rounds that have not ended for us."""
        rows = self.file.rows(
            "SELECT round, spec, request FROM rounds JOIN jobs USING (job)"
            " WHERE rounds.ended IS NULL ORDER BY rounds.rowid"
        )
        return [StoredRound(*row) for row in rows]

    def is_open(self, round_id: str) -> bool:
        """Tell whether a round is on file and has not ended for us."""
        found = self.file.one("SELECT ended IS NULL FROM rounds WHERE round = ?", round_id)
        return bool(found and found[0])

    def is_answered(self, round_id: str) -> bool:
        """Tell whether a round of this job and number was answered, or charged elsewhere."""
        found = self.file.one(
            "SELECT 1 FROM rounds JOIN ledger ON (ledger.job, place) = (rounds.job, rounds.number)"
            " WHERE rounds.round = ? LIMIT 1",
            round_id,
        )
        return found is not None

    def record_answer(
        self,
        round_id: str,
        cost: Cost,
        now: datetime,
        *,
        used: BitMap,
        unused: BitMap,
        envelopes: Mapping[int, bytes],
    ) -> bool:
        """Debit `cost` to each slot in `used` and store the envelopes, by node; or none.

        The ledger names the `unused` slots, too, which the answer covers at no cost to them. False
        if the round's job has ended here meanwhile: nothing may be sent then.

        Raises:
            ValueError: this round was answered already.
        """
        with self.file.transaction():
            job, number = self.file.one("SELECT job, number FROM rounds WHERE round = ?", round_id)
            if exits.has_ended(self.file, job):
                return False
            for slots, price in ((used, cost), (unused, NOTHING)):
                if slots:
                    ledger.append(self.file, round_id, job, number, price, now, slots)
            self.file.database.executemany(
                "INSERT INTO outbox (round, node, outcome, digest, envelope)"
                " VALUES (?, ?, ?, ?, ?)",
                (
                    (round_id, node, PENDING, envelope_digest(envelope), envelope)
                    for node, envelope in envelopes.items()
                ),
            )
        return True

    def end_round(self, round_id: str, reason: str) -> None:
        """Send nothing more in this round, and erase its envelopes.

        If all that were prepared were answered, it ends as delivered whatever the reason.
        """
        with self.file.transaction():
            self._end_round(round_id, reason)
        self.file.truncate_log()

    def _end_rounds(self, job: str, reason: str) -> None:
        for (round_id,) in self.file.rows(
            "SELECT round FROM rounds WHERE job = ? AND ended IS NULL", job
        ):
            self._end_round(round_id, reason)

    def _end_round(self, round_id: str, reason: str) -> None:
        prepared, pending = self.file.one(
            "SELECT COUNT(*), COUNT(*) FILTER (WHERE outcome = 'pending') FROM outbox"
            " WHERE round = ?",
            round_id,
        )
        self.file.database.execute(
            "UPDATE rounds SET ended = ? WHERE round = ? AND ended IS NULL",
            (DELIVERED if prepared and not pending else reason, round_id),
        )
        self.file.database.execute(
            "UPDATE outbox SET envelope = NULL,"
            " outcome = CASE outcome WHEN 'pending' THEN 'unsent' ELSE outcome END"
            " WHERE round = ? AND (envelope IS NOT NULL OR outcome = 'pending')",
            (round_id,),
        )

    def adopt(self, forgotten: Sequence[ledger.ChargedElsewhere], now: datetime) -> None:
        """Charge rounds that this ledger lacks; their jobs are answered no more."""
        self._committed = None
        with self.file.transaction():
            for each in forgotten:
                ledger.adopt(self.file, each, now)
            for job in {each.job for each in forgotten}:
                self.file.database.execute(
                    "UPDATE jobs SET ended = ? WHERE job = ? AND ended IS NULL", (FORGOTTEN, job)
                )
                self._end_rounds(job, FORGOTTEN)
        self.file.truncate_log()

    # What was done and spent

    def committed(self) -> Balances:
        """Return what each client spent, and what open jobs may still ask of it.

        The sum is computed when a job begins or ends here: a job's rounds only spend what was
        reserved, and contributions to crowds are added at once.
        """
        if self._committed is None:
            self._committed = spending.committed(self.file)
        return self._committed

    def commit_more(self, committed: Balances) -> None:
        """Take new sums, after charges for contributions to a crowd."""
        if self._committed is not None:
            self._committed = committed
