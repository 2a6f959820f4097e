"""The data holder's state on disk: jobs joined, answers given, their costs, and what is to be sent.

One SQLite file. One transaction debits the slots' cost and stores the bytes to send, before the
first of them is sent. A round of a job is answered only once. The journal only grows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

import nacl.utils
from pyroaring import BitMap

from shoal_holder import journal, spending
from shoal_holder.state_file import StateFile
from shoal_kit.outcome import ACKNOWLEDGED, PENDING
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.privacy.accounting import Balances, Cost
from shoal_protocol.sharing.envelope import envelope_digest
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.encoding import (
    Digest,
    canonical_json,
    encode_clients,
    format_time,
    sha256,
)
from shoal_protocol.wire.errors import LedgerBroken, UnknownJob

DELIVERED: Final = "delivered"
FORGOTTEN: Final = "forgotten"
"""Why a job has ended here of which rounds were forgotten, and charged anew."""
LEFT: Final = "left"
"""Why a job has ended here that its owner left."""

Letter = Literal["join", "leave"]


@dataclass(frozen=True)
class StoredJob:
    """A job in rounds that was joined, and the number of its next round."""

    job: str
    request: bytes
    ended: str | None
    next_number: int


@dataclass(frozen=True)
class ReservedBudget:
    """The budget, in mu or pure epsilon, that an open job reserves of each slot, and until when.

    It is all of a job's price, its rounds' costs so far included; `epsilon` None is infinite.
    """

    job: str
    slots: int
    mu: float
    epsilon: float | None
    until: str


_JOBS: Final = (
    "SELECT * FROM (SELECT job, request, ended, (SELECT COALESCE(MAX(number) + 1, 0) FROM rounds"
    " WHERE rounds.job = jobs.job) FROM jobs WHERE opening IS NULL ORDER BY rowid)"
)


class State:
    """The data holder's state: what it did and has yet to do. For one thread at a time.

    `crowds.memory` keeps crowd jobs in the same file.
    """

    def __init__(
        self,
        path: Path,
        *,
        authority: str,
        is_restored: bool = False,
        random_bytes: RandomBytes = nacl.utils.random,
    ) -> None:
        """Open or create the state of a data holder in the consortium of `authority`.

        A file that `is_restored` may be behind its mark: the Compute nodes tell what it lacks.

        Raises:
            ValueError: as `StateFile`, or the journal in it was tampered with.
        """
        self.file = StateFile(
            path,
            authority=authority,
            is_restored=is_restored,
            random_bytes=random_bytes,
        )
        self._committed: Balances | None = None
        self._in_jobs: dict[str, tuple[Balances, int]] = {}  # spent up to an entry, by open job
        try:
            journal.verify(self.file)
        except LedgerBroken as error:
            self.file.close()
            whole = "restore the file from where its journal is whole"
            raise ValueError(f"{path}: {error}; {whole}") from None

    def close(self) -> None:
        """Close the file. Nothing is written: whatever was done is on disk already."""
        self.file.close()

    # Jobs and joins

    def add_job(self, job: str, request: bytes, *, cost: Cost, slots: BitMap, join: bytes) -> None:
        """Store a job, which may cost each of `slots` `cost`, with the signed join to be sent."""
        self._committed = None
        with self.file.transaction():
            self.file.database.execute(
                "INSERT INTO jobs (job, request) VALUES (?, ?)", (job, request)
            )
            reserved = {"mu": cost.mu, "epsilon": cost.stated_epsilon}
            journal.append(self.file, "join", job, job=job, slots=encode_clients(slots), **reserved)
            self._add("join", job, join)

    def _add(self, kind: str, about: str, document: bytes) -> None:
        """Put what is to be sent to the trainer into the outbox, once."""
        self.file.database.execute(
            "INSERT OR IGNORE INTO outbox VALUES (?, ?, 0, NULL, ?, ?)",
            (kind, about, document, PENDING),
        )

    def open_jobs(self) -> list[StoredJob]:
        """Return the jobs in rounds that we still take part in."""
        return [StoredJob(*row) for row in self.file.rows(f"{_JOBS} WHERE ended IS NULL")]

    def joined(self, job: Digest) -> StoredJob:
        """Return a job in rounds that was joined.

        Raises:
            UnknownJob
        """
        found = self.file.one(f"{_JOBS} WHERE job = ?", job)
        if found is None:
            raise UnknownJob("this data holder has not joined such a job")
        return StoredJob(*found)

    def pending_letters(self, what: Letter) -> dict[str, bytes]:
        """Return the signed joins of open jobs, or leaves, that nobody has answered, by job."""
        return dict(
            self.file.rows(
                "SELECT job, document FROM outbox JOIN jobs ON about = job WHERE kind = ?"
                " AND outcome = ? AND (kind = 'leave' OR ended IS NULL) ORDER BY jobs.rowid",
                *(what, PENDING),
            )
        )

    def settle(self, kind: str, about: str, outcome: str, node: int = 0) -> None:
        """Record the answer to what was sent, and erase what was sent if it was refused.

        An acknowledged envelope stays until the round ends here: the node may lose it.
        """
        self._committed = self._committed if kind == "envelope" else None  # a join reserves
        self.file.write(
            "UPDATE outbox SET outcome = ?1, document = CASE ?1 WHEN ?2 THEN document END"
            " WHERE (kind, about, node, outcome) = (?3, ?4, ?5, ?6)",
            *(outcome, ACKNOWLEDGED, kind, about, node, PENDING),
        )

    def slots_of_job(self, job: str) -> BitMap:
        """Return the slots whose records a job may use; none if the join was refused."""
        is_member = self.file.one(
            "SELECT 1 FROM outbox WHERE (kind, about) = ('join', ?) AND outcome IN (?, ?)",
            *(job, PENDING, ACKNOWLEDGED),
        )
        return BitMap() if is_member is None else spending.joined(self.file, job)[0]

    def reserved(self) -> list[ReservedBudget]:
        """Return what open jobs hold of their slots' budgets, in the order of joining."""
        return [
            ReservedBudget(
                job,
                len(slots),
                cost.mu,
                cost.stated_epsilon,
                format_time(decode(request, JobRequest).body.ends_by),
            )
            for job, request, slots, cost in spending.reserving(self.file)
        ]

    def end_job(self, job: str, reason: str, *, leave: bytes | None = None) -> None:
        """Do nothing for this job again, and erase what of it is unsent.

        The same transaction stores the signed leave to send.
        """
        self._committed = None
        self._in_jobs.pop(job, None)
        with self.file.transaction():
            self._end(job, reason)
            if leave is not None:
                left = self.file.one("SELECT 1 FROM outbox WHERE (kind, about) = ('leave', ?)", job)
                if left is None:
                    journal.append(self.file, "leave", job, job=job)
                self._add("leave", job, leave)
        self.file.give_back()

    def _end(self, job: str, reason: str) -> None:
        self.file.database.execute(
            "UPDATE jobs SET ended = ? WHERE job = ? AND ended IS NULL", (reason, job)
        )
        self._end_rounds(job, reason)
        self.file.database.execute(
            "UPDATE outbox SET document = NULL, outcome = 'unsent'"
            " WHERE (kind, outcome) = ('contribution', 'pending') AND about IN"
            " (SELECT subject FROM journal WHERE (kind, job) = ('contribution', ?))",
            (job,),
        )

    # Rounds, the journal and the outbox

    def add_round(
        self, round_id: str, job: str, number: int, spec: bytes, ended: str | None
    ) -> None:
        """Store the one round that has this number in the job; `ended` if it is not answered.

        The job's earlier rounds are over: the trainer asks for one after the other.

        Raises:
            sqlite3.IntegrityError: the job already has another round of this number.
        """
        with self.file.transaction():
            self._end_rounds(job, "over")
            self.file.database.execute(
                "INSERT INTO rounds (round, job, number, spec, ended) VALUES (?, ?, ?, ?, ?)",
                (round_id, job, number, spec, ended),
            )

    def open_rounds(self) -> dict[str, bytes]:
        """Return the specs of the rounds that have not ended for us, by round."""
        return dict(
            self.file.rows("SELECT round, spec FROM rounds WHERE ended IS NULL ORDER BY rowid")
        )

    def is_answered(self, round_id: str) -> bool:
        """Tell whether a round of this job and number was answered, or charged elsewhere."""
        job, number = self.file.one("SELECT job, number FROM rounds WHERE round = ?", round_id)
        return next(spending.charges(self.file, job, number=number), None) is not None

    def record_answer(
        self,
        round_id: str,
        cost: Cost,
        now: datetime,
        *,
        used: BitMap,
        unused: BitMap,
        envelopes: Mapping[int, bytes],
    ) -> None:
        """Debit `cost` to each slot in `used` and store the envelopes, by node; or none.

        The journal names the `unused` slots, too, which the answer covers at no cost to them.

        Raises:
            sqlite3.IntegrityError: this round was answered already.
        """
        with self.file.transaction():
            job, number = self.file.one("SELECT job, number FROM rounds WHERE round = ?", round_id)
            journal.append_charge(
                *(self.file, "answer", round_id),
                job=job,
                number=number,
                cost=cost,
                slots=used,
                unused=encode_clients(unused),
                at=now,
            )
            self.file.database.executemany(
                "INSERT INTO outbox VALUES ('envelope', ?, ?, ?, ?, ?)",
                (
                    (round_id, node, envelope_digest(envelope), envelope, PENDING)
                    for node, envelope in envelopes.items()
                ),
            )

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
            " WHERE (kind, about) = ('envelope', ?)",
            round_id,
        )
        self.file.database.execute(
            "UPDATE rounds SET ended = ? WHERE round = ? AND ended IS NULL",
            (DELIVERED if prepared and not pending else reason, round_id),
        )
        self.file.database.execute(
            "UPDATE outbox SET document = NULL,"
            " outcome = CASE outcome WHEN 'pending' THEN 'unsent' ELSE outcome END"
            " WHERE (kind, about) = ('envelope', ?)"
            " AND (document IS NOT NULL OR outcome = 'pending')",
            (round_id,),
        )

    # Envelopes: one is erased when a node refused it or its round has ended. Until then the same
    # bytes can be sent again, for a node may lose what it acknowledged.

    def envelope(self, round_id: str, node: int, outcome: str) -> tuple[bytes, bytes] | None:
        """Return digest and bytes of the envelope to a node, if it is there and this became of it.

        An envelope is there until its round has ended or the node refused it.
        """
        found: tuple[bytes, bytes] | None = self.file.one(
            "SELECT digest, document FROM outbox"
            " WHERE (kind, about, node, outcome) = ('envelope', ?, ?, ?) AND document IS NOT NULL",
            *(round_id, node, outcome),
        )
        return found

    def envelopes(self, round_id: str) -> dict[int, str]:
        """Return what became of the envelopes that can be sent, or sent again, by node."""
        return dict(
            self.file.rows(
                "SELECT node, outcome FROM outbox"
                " WHERE (kind, about) = ('envelope', ?) AND document IS NOT NULL ORDER BY node",
                round_id,
            )
        )

    def send_again(self, round_id: str, node: int) -> None:
        """Mark an envelope that a node acknowledged and then lost, so that it is sent again."""
        self.file.write(
            "UPDATE outbox SET outcome = ? WHERE (kind, about, node, outcome)"
            " = ('envelope', ?, ?, ?) AND document IS NOT NULL",
            *(PENDING, round_id, node, ACKNOWLEDGED),
        )

    def not_charged(self, rounds: Iterable[spending.Charge]) -> list[spending.Charge]:
        """Return those of `rounds` that were not charged here, with the clients who lack them."""
        lacking = [
            (each, each.clients - spending.charged(self.file, each.job, each.number))
            for each in rounds
        ]
        return [each._replace(clients=clients) for each, clients in lacking if clients]

    def adopt(self, forgotten: Sequence[spending.Charge], now: datetime) -> None:
        """Charge rounds that were not charged here; their jobs are answered no more."""
        self._committed = None
        with self.file.transaction():
            for each in forgotten:
                about = [each.job, each.number, each.what, encode_clients(each.clients)]
                journal.append_charge(
                    *(self.file, "charge", sha256("charged_elsewhere", canonical_json(about))),
                    job=each.job,
                    number=each.number,
                    round=each.what,
                    cost=each.cost,
                    slots=each.clients,
                    at=now,
                )
            for job in {each.job for each in forgotten}:
                self._end(job, FORGOTTEN)
        self.file.give_back()

    # What was done and spent

    def spent_in_job(self, job: str, clients: BitMap) -> Cost:
        """Return the most that the rounds of an open job cost one of `clients` so far.

        Each charge is read once: a job may have thousands of rounds.
        """
        spent, entry = self._in_jobs.get(job, (Balances(), 0))
        for each in spending.charges(self.file, job, after=entry):
            spent.add(each.clients, each.cost)
            entry = each.entry
        self._in_jobs[job] = spent, entry
        return spent.largest(clients)

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
        self._committed = committed
