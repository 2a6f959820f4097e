"""What this data holder contributed to crowds, on disk: charged with the bytes, before they leave.

It draws nothing and sends nothing. What is sent is kept until the trainer answered; draws and
receipts are kept until a closing bears them out, for good where it does not.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from shoal_client import ledger
from shoal_client.crowds import nonces
from shoal_client.crowds.records_used import Limits, allowed_records
from shoal_client.state import State
from shoal_client.state_file import PENDING
from shoal_client.status import CrowdStatus
from shoal_protocol.accounting import NOTHING, Cost, compose


@dataclass(frozen=True)
class StoredCrowd:
    """A crowd job on file: its signed request and opening."""

    job: str
    request: bytes
    opening: bytes


@dataclass(frozen=True)
class Prepared:
    """A contribution that is ready to be charged: `document` is the signed submission."""

    client: int
    record: int
    submission: str  # digest of the document
    draw: bytes = field(repr=False)
    document: bytes = field(repr=False)


@dataclass(frozen=True)
class Evidence:
    """What the trainer signed for one contribution."""

    contribution: str
    outcome: str
    draw: bytes
    receipt: bytes | None


def is_known(state: State, job: str) -> bool:
    """Tell whether a crowd job was ever contributed to."""
    return bool(state.file.rows("SELECT 1 FROM crowds WHERE job = ?", job))


def add(state: State, job: str, request: bytes, opening: bytes) -> None:
    """Store a crowd job, which from now on is contributed to."""
    with state.file.transaction():
        state.file.database.execute(
            "INSERT INTO crowds (job, request, opening) VALUES (?, ?, ?)", (job, request, opening)
        )


def open_crowds(state: State) -> list[str]:
    """Return the crowd jobs that are still contributed to."""
    rows = state.file.rows("SELECT job FROM crowds WHERE ended IS NULL ORDER BY rowid")
    return [job for (job,) in rows]


def documents(state: State, job: str) -> StoredCrowd:
    """Return a crowd job that is on file. An opening may be large: ask once."""
    row = state.file.one("SELECT job, request, opening FROM crowds WHERE job = ?", job)
    return StoredCrowd(*row)


def charge(
    state: State,
    job: str,
    prepared: Sequence[Prepared],
    *,
    limits: Limits,
    records: Sequence[int],
    now: datetime,
) -> list[bool]:
    """Charge contributions and store what is to be sent, in one transaction; say which of them.

    `records` are how many records each one's client has. One that would break a limit by now, or
    whose job has ended here, is not stored, and must never be sent.
    """
    committed, anew = state.committed(), dict[int, Cost]()
    taken = []
    with state.file.transaction():
        is_open = state.file.one("SELECT ended IS NULL FROM crowds WHERE job = ?", job) == (1,)
        for each, count in zip(prepared, records, strict=True):
            before = anew.get(each.client, committed.get(each.client, NOTHING))
            allowed = is_open and each.record in allowed_records(
                state, job, each.client, count, limits, committed=before
            )
            if allowed:
                _store(state, job, each)
                contribution = ledger.contribution_id(each.submission, each.record)
                ledger.charge_contribution(state.file, contribution, limits.cost, now)
                anew[each.client] = compose([before, limits.cost])
            taken.append(allowed)
        nonces.answered(state, job, anew)
    state.commit_more(anew)
    return taken


def _store(state: State, job: str, prepared: Prepared) -> None:
    state.file.database.execute(
        "INSERT INTO contributions (contribution, job, client, number, record, submission, draw,"
        " document, outcome) VALUES (?, ?, ?,"
        " (SELECT COUNT(*) FROM contributions WHERE job = ? AND client = ?), ?, ?, ?, ?, ?)",
        (
            ledger.contribution_id(prepared.submission, prepared.record),
            *(job, prepared.client, job, prepared.client, prepared.record, prepared.submission),
            *(prepared.draw, prepared.document, PENDING),
        ),
    )


def pending(state: State, job: str, *, count: int) -> list[tuple[str, bytes]]:
    """Return (contribution, signed submission) of up to `count` that nobody has answered."""
    return state.file.rows(
        "SELECT contribution, document FROM contributions WHERE job = ? AND outcome = 'pending'"
        " ORDER BY rowid LIMIT ?",
        job,
        count,
    )


def settle(state: State, settled: Iterable[tuple[str, str, bytes | None]]) -> None:
    """Record (contribution, outcome, signed receipt if there is one), and erase what was sent."""
    with state.file.transaction():
        state.file.database.executemany(
            "UPDATE contributions SET outcome = ?, receipt = ?, document = NULL"
            " WHERE contribution = ? AND outcome = 'pending'",
            ((outcome, receipt, contribution) for contribution, outcome, receipt in settled),
        )


def end(state: State, job: str, reason: str) -> None:
    """Contribute no more to this job, and erase what was not sent."""
    with state.file.transaction():
        state.file.database.execute(
            "UPDATE crowds SET ended = ? WHERE job = ? AND ended IS NULL", (reason, job)
        )
        state.file.database.execute(
            "UPDATE contributions SET outcome = 'unsent', document = NULL"
            " WHERE job = ? AND outcome = 'pending'",
            (job,),
        )
        nonces.forget(state, job)
    state.file.truncate_log()


def unverified(state: State) -> list[str]:
    """Return the crowd jobs that ended here and whose closing was not compared with what we kept.

    Those of which nothing was kept are not among them.
    """
    rows = state.file.rows(
        "SELECT job FROM crowds WHERE ended IS NOT NULL AND verdict IS NULL"
        " AND EXISTS (SELECT 1 FROM contributions WHERE contributions.job = crowds.job)"
        " ORDER BY rowid"
    )
    return [job for (job,) in rows]


def evidence(state: State, job: str) -> list[Evidence]:
    """Return what the trainer signed for each contribution to a job."""
    rows = state.file.rows(
        "SELECT contribution, outcome, draw, receipt FROM contributions"
        " WHERE job = ? AND draw IS NOT NULL ORDER BY rowid",
        job,
    )
    return [Evidence(*row) for row in rows]


def conclude(state: State, job: str, *, closing: bytes, verdict: str, kept: Iterable[str]) -> None:
    """Store what a closing says of the contributions; erase all evidence but that of `kept`."""
    with state.file.transaction():
        state.file.database.execute(
            "UPDATE crowds SET closing = ?, verdict = ? WHERE job = ?", (closing, verdict, job)
        )
        state.file.database.execute(
            "UPDATE contributions SET draw = NULL, receipt = NULL"
            " WHERE job = ? AND contribution NOT IN (SELECT value FROM json_each(?))",
            (job, json.dumps(list(kept))),
        )


def statuses(state: State) -> tuple[CrowdStatus, ...]:
    """Return every crowd job that was ever contributed to, in order, in counts."""
    counts: dict[str, dict[str, int]] = {}
    for job, outcome, count in state.file.rows(
        "SELECT job, outcome, COUNT(*) FROM contributions GROUP BY job, outcome"
    ):
        counts.setdefault(job, {})[outcome] = count
    return tuple(
        CrowdStatus(job, ended, counts.get(job, {}), verdict)
        for job, ended, verdict in state.file.rows(
            "SELECT job, ended, verdict FROM crowds ORDER BY rowid"
        )
    )
