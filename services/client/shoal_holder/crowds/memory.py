"""Stores contributions to crowds and charges for them, in one transaction, before they are sent.

Submissions are kept until the trainer answered; draws and receipts, compressed, until a closing
bears them out, and for good where it does not.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyroaring import BitMap

from shoal_holder import journal
from shoal_holder.crowds.allowance import Limits, used_by
from shoal_holder.crowds.status import CrowdStatus
from shoal_holder.state import State
from shoal_kit.outcome import PENDING
from shoal_protocol.crowds.draws import Draw, Submission, SubmissionReceipt
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import MalformedDocument

MOST_TOGETHER: Final = 64
"""Contributions that are drawn for, charged and sent together."""


@dataclass(frozen=True)
class Evidence:
    """What the trainer signed for one contribution."""

    contribution: str
    outcome: str
    draw: Signed[Draw]
    receipt: Signed[SubmissionReceipt] | None


def open_jobs(state: State) -> list[str]:
    """Return the crowd jobs that are contributed to."""
    query = "SELECT job FROM jobs WHERE ended IS NULL AND opening IS NOT NULL ORDER BY rowid"
    return [job for (job,) in state.file.rows(query)]


def unjudged(state: State) -> list[tuple[str, bool, bool]]:
    """Return (job, whether it ended here, whether its closing was shown) where no verdict is.

    A job that ended here without a contribution needs none.
    """
    rows = state.file.rows(
        "SELECT job, ended IS NOT NULL, closing IS NOT NULL FROM jobs"
        " WHERE opening IS NOT NULL AND verdict IS NULL AND (ended IS NULL OR EXISTS"
        " (SELECT 1 FROM journal WHERE (kind, journal.job) = ('contribution', jobs.job)))"
        " ORDER BY rowid"
    )
    return [(job, bool(is_ended), bool(is_shown)) for job, is_ended, is_shown in rows]


def add(state: State, job: str, request: bytes, opening: bytes) -> None:
    """Store a crowd job, which from now on is contributed to."""
    state.file.write(
        "INSERT INTO jobs (job, request, opening) VALUES (?, ?, ?)", job, request, opening
    )


def documents(state: State, job: str) -> tuple[bytes, bytes, bytes | None] | None:
    """Return a crowd job's signed request, opening and closing, which may be large.

    None if it is none. The closing is the one that was shown here first, None if none was yet.
    """
    query = "SELECT request, opening, closing FROM jobs WHERE job = ? AND opening IS NOT NULL"
    found: tuple[bytes, bytes, bytes | None] | None = state.file.one(query, job)
    return found


def charge(
    state: State,
    job: str,
    prepared: Sequence[Signed[Submission]],
    *,
    limits: Limits,
    now: datetime,
) -> list[bool]:
    """Charge contributions and store submissions in one transaction; tell of each if it was stored.

    A contribution that would break a limit by now is not stored, and must never be sent.
    """
    committed, taken, database = state.committed().copy(), [], state.file.database
    with state.file.transaction():
        for submission in prepared:
            client = submission.body.client
            charged = BitMap([client])
            [before] = committed.of(charged).values()
            used = used_by(state, job, [client])[client]
            allowed = limits.allow(used, committed=before)
            taken.append(allowed)
            if not allowed:
                continue
            database.execute(
                "INSERT INTO outbox VALUES ('contribution', ?, 0, NULL, ?, ?)",
                (submission.digest, submission.encode(), PENDING),
            )
            database.execute(
                "INSERT INTO crowd_evidence (contribution, draw) VALUES (?, ?)",
                (submission.digest, zlib.compress(submission.body.draw.encode())),
            )
            journal.append_charge(
                *(state.file, "contribution", submission.digest),
                job=job,
                cost=limits.cost,
                slots=charged,
                at=now,
                client=client,
            )
            committed.add(charged, limits.cost)
        state.commit_more(committed)  # it counts though the mark of it may fail
    return taken


def pending(state: State, job: str) -> dict[int, bytes]:
    """Return the signed submissions that nobody answered, at most `MOST_TOGETHER`, by number."""
    rows = state.file.rows(
        # SQLite is told to begin with the few that are pending, not the many that were charged
        "SELECT number, document FROM outbox INDEXED BY outbox_pending"
        " CROSS JOIN journal ON (journal.kind, subject) = ('contribution', about)"
        " WHERE (outbox.kind, outcome) = ('contribution', 'pending') AND job = ?"
        " ORDER BY number LIMIT ?",
        *(job, MOST_TOGETHER),
    )
    return dict(rows)


def settle(state: State, contribution: str, outcome: str, receipt: bytes | None) -> None:
    """Record what became of a submission, with its receipt if there is one, and erase it."""
    with state.file.transaction():
        state.file.database.execute(
            "UPDATE outbox SET outcome = ?, document = NULL"
            " WHERE (kind, about) = ('contribution', ?)",
            (outcome, contribution),
        )
        state.file.database.execute(
            "UPDATE crowd_evidence SET receipt = ? WHERE contribution = ?",
            (receipt and zlib.compress(receipt), contribution),
        )


def evidence(state: State, job: str) -> list[Evidence]:
    """Return the trainer's signed documents for each contribution to a job.

    Raises:
        MalformedDocument: it was changed on file.
    """
    rows = state.file.rows(
        "SELECT contribution, outcome, draw, receipt FROM crowd_evidence"
        " JOIN outbox ON (outbox.kind, about) = ('contribution', contribution)"
        " JOIN journal ON (journal.kind, subject) = ('contribution', contribution)"
        " WHERE job = ? ORDER BY number",
        job,
    )
    try:
        return [
            Evidence(
                contribution,
                outcome,
                decode(zlib.decompress(draw), Draw),
                None if receipt is None else decode(zlib.decompress(receipt), SubmissionReceipt),
            )
            for contribution, outcome, draw, receipt in rows
        ]
    except zlib.error:
        raise MalformedDocument("what is kept of a contribution was changed on file") from None


def conclude(state: State, job: str, *, verdict: str, kept: Iterable[str]) -> None:
    """Store the verdict on the contributions; erase all evidence except that of `kept`.

    The disk space goes back to the system.
    """
    with state.file.transaction():
        state.file.database.execute("UPDATE jobs SET verdict = ? WHERE job = ?", (verdict, job))
        state.file.database.execute(
            "DELETE FROM crowd_evidence WHERE contribution IN"
            " (SELECT subject FROM journal WHERE (kind, job) = ('contribution', ?))"
            " AND contribution NOT IN (SELECT value FROM json_each(?))",
            (job, json.dumps(list(kept))),
        )
    state.file.give_back()


def statuses(state: State) -> tuple[CrowdStatus, ...]:
    """Return the status of every crowd job that was ever contributed to, in order, in counts."""
    counts: dict[str, dict[str, int]] = {}
    for job, outcome, count in state.file.rows(
        "SELECT job, outcome, COUNT(*) FROM outbox"
        " JOIN journal ON (journal.kind, subject) = (outbox.kind, about)"
        " WHERE outbox.kind = 'contribution' GROUP BY job, outcome"
    ):
        counts.setdefault(job, {})[outcome] = count
    costs = {
        job: (clients, epsilon)
        for job, clients, epsilon in state.file.rows(
            "SELECT job, COUNT(DISTINCT client), MAX(json_extract(body, '$.epsilon'))"
            " FROM journal WHERE kind = 'contribution' GROUP BY job"
        )
    }
    return tuple(
        CrowdStatus(job, ended, counts.get(job, {}), *costs.get(job, (0, 0.0)), verdict)
        for job, ended, verdict in state.file.rows(
            "SELECT job, ended, verdict FROM jobs WHERE opening IS NOT NULL ORDER BY rowid"
        )
    )
