"""Stores contributions to crowds and charges for them, in one transaction, before they are sent.

Submissions are kept until the trainer answered; draws and receipts until a closing bears them out,
and for good where it does not. They are compressed without loss: the text that all documents of a
job share is stored once, as the dictionary of the compression.
"""

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pyroaring import BitMap

from shoal_holder import ledger
from shoal_holder.crowds.records_used import Limits, allowed_places
from shoal_holder.crowds.status import CrowdStatus
from shoal_holder.state import State
from shoal_holder.state_file import StateFile
from shoal_hosting.outcome import PENDING
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.errors import MalformedDocument

# The spelling of draws and receipts. Never change it: stored documents refer to it.
_SPELLING: Final = (
    b'{"body":{"entry":{"instance":,"job":"","nonce":"","previous":"","revision":,"weights":""},'
    b'"kind":"submission_receipt","manifest":""},"signature":"","signer":"trainer"}'
    b'{"body":{"expires_at":"2026-01-01T00:00:00.000Z","instance":,"job":"","kind":"draw",'
    b'"manifest":"","nonce":"","revision":,"version":1,"weights":[]},"signature":"","signer":"'
)
NONCE_BYTES: Final = 32
_LARGEST: Final = 1 << 24  # bytes, of a document


def _packed(document: bytes, near: bytes) -> bytes:
    """Compress `document` with the dictionary `near`, of up to 32 KB."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, 9, zdict=_SPELLING + near)
    return deflate.compress(document) + deflate.flush()


def _unpacked(stored: bytes, near: bytes) -> bytes:
    """Return the document that was `packed` with the same `near`.

    Raises:
        MalformedDocument: it was packed with another, or changed on file.
    """
    inflate = zlib.decompressobj(zlib.MAX_WBITS, zdict=_SPELLING + near)
    try:
        document = inflate.decompress(stored, _LARGEST)
    except zlib.error:
        raise MalformedDocument("a document on file is damaged") from None
    if not inflate.eof:
        raise MalformedDocument("a document on file is cut short")
    return document


def nonces_of(
    state: State, job: str, clients: Sequence[int], random_bytes: RandomBytes
) -> dict[int, str]:
    """Return the nonce by which each client is to draw next, on file before it is sent.

    A repeated request has the same nonce, also after a restart. A new one would give a trainer that
    dislikes a draw a second try, by leaving the first unanswered.
    """
    of_job = "SELECT client, nonce FROM crowd_nonces WHERE job = ?"
    nonces: dict[int, str] = dict(state.file.rows(of_job, job))
    new = {each: random_bytes(NONCE_BYTES).hex() for each in clients if each not in nonces}
    if new:
        with state.file.transaction():
            state.file.database.executemany(
                "INSERT INTO crowd_nonces VALUES (?, ?, ?)",
                ((job, client, nonce) for client, nonce in new.items()),
            )
    return {client: new.get(client) or nonces[client] for client in clients}


def _forget_answered(state: State, job: str, clients: Iterable[int]) -> None:
    """Forget the nonces of these clients, in the transaction that stores their draws."""
    state.file.database.executemany(
        "DELETE FROM crowd_nonces WHERE job = ? AND client = ?",
        ((job, client) for client in clients),
    )


def _forget_nonces(state: State, job: str) -> None:
    """Forget the nonces of a job that has ended here, in the transaction that ends it."""
    state.file.database.execute("DELETE FROM crowd_nonces WHERE job = ?", (job,))


_COMMON: Final = 2000  # bytes


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
    place: int
    submission: str  # digest of the document
    draw: bytes = field(repr=False)
    document: bytes = field(repr=False)


@dataclass(frozen=True)
class Evidence:
    """The trainer's signed documents for one contribution."""

    contribution: str
    outcome: str
    draw: bytes
    receipt: bytes | None


def is_known(state: State, job: str) -> bool:
    """Tell whether a crowd job was ever contributed to."""
    return bool(state.file.rows("SELECT 1 FROM crowds WHERE job = ?", job))


def known(state: State) -> list[str]:
    """Return the crowd jobs that were ever contributed to."""
    return [job for (job,) in state.file.rows("SELECT job FROM crowds ORDER BY rowid")]


def has_contributed(state: State, job: str) -> bool:
    """Tell whether anything was charged for a crowd job."""
    return bool(state.file.rows("SELECT 1 FROM contributions WHERE job = ? LIMIT 1", job))


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
    now: datetime,
) -> list[bool]:
    """Charge contributions and store submissions in one transaction; tell of each if it was stored.

    A contribution that would break a limit by now, or whose job has ended here, is not stored, and
    must never be sent.
    """
    committed = state.committed().copy()
    taken, contributed = [], set[int]()
    with state.file.transaction():
        is_open = state.file.one("SELECT ended IS NULL FROM crowds WHERE job = ?", job) == (1,)
        near = _common(state, job)
        for each in prepared:
            client = BitMap([each.client])
            [before] = committed.of(client).values()
            allowed = is_open and each.place in allowed_places(
                state, job, each.client, limits, committed=before
            )
            if allowed:
                _store(state, job, each, near)
                contribution = ledger.contribution_id(each.submission, each.place)
                _charge(state.file, contribution, limits.cost, now)
                committed.add(client, limits.cost)
                contributed.add(each.client)
            taken.append(allowed)
        _forget_answered(state, job, contributed)
    state.commit_more(committed)
    return taken


def _charge(file: StateFile, contribution: str, cost: Cost, now: datetime) -> None:
    """Charge a contribution, which is on file, to its client.

    Raises:
        ValueError: it was charged already.
    """
    job, client = file.one(
        "SELECT job, client FROM contributions WHERE contribution = ?", contribution
    )
    ledger.append(file, contribution, job, None, cost, now, BitMap([client]))


def _store(state: State, job: str, prepared: Prepared, near: bytes) -> None:
    contribution = ledger.contribution_id(prepared.submission, prepared.place)
    state.file.database.execute(
        "INSERT INTO contributions (contribution, job, client, number, record, submission, outcome)"
        " VALUES (?, ?, ?,"
        " (SELECT COUNT(*) FROM contributions WHERE job = ? AND client = ?), ?, ?, ?)",
        (
            *(contribution, job, prepared.client, job, prepared.client),
            *(prepared.place, prepared.submission, PENDING),
        ),
    )
    state.file.database.execute(
        "INSERT INTO crowd_outbox VALUES (?, ?)", (contribution, prepared.document)
    )
    state.file.database.execute(
        "INSERT INTO crowd_evidence (contribution, draw) VALUES (?, ?)",
        (contribution, _packed(prepared.draw, near)),
    )


def _common(state: State, job: str) -> bytes:
    """Return the text that the trainer's documents of a job share: the end of its opening."""
    (near,) = state.file.one("SELECT substr(opening, ?) FROM crowds WHERE job = ?", -_COMMON, job)
    return bytes(near)


def pending(state: State, job: str, *, count: int) -> list[tuple[str, bytes]]:
    """Return (contribution, signed submission) of up to `count` unanswered ones."""
    return state.file.rows(
        "SELECT contribution, document FROM contributions JOIN crowd_outbox USING (contribution)"
        " WHERE job = ? AND outcome = 'pending' ORDER BY contributions.rowid LIMIT ?",
        job,
        count,
    )


def settle(state: State, settled: Iterable[tuple[str, str, bytes | None]]) -> None:
    """Record (contribution, outcome, signed receipt if any), and erase the submissions."""
    near: dict[str, bytes] = {}  # an opening may be large: it is read once for a job
    with state.file.transaction():
        for contribution, outcome, receipt in settled:
            done = state.file.database.execute(
                "UPDATE contributions SET outcome = ?"
                " WHERE contribution = ? AND outcome = 'pending'",
                (outcome, contribution),
            )
            if done.rowcount == 0:  # settled before: its outcome stays
                continue
            state.file.database.execute(
                "DELETE FROM crowd_outbox WHERE contribution = ?", (contribution,)
            )
            if receipt is not None:
                _keep_receipt(state, contribution, receipt, near)


def _keep_receipt(state: State, contribution: str, receipt: bytes, near: dict[str, bytes]) -> None:
    """Keep a receipt packed by the draw that it acknowledges an answer to."""
    query = (
        "SELECT draw, job FROM crowd_evidence JOIN contributions USING (contribution)"
        " WHERE contribution = ?"
    )
    draw, job = state.file.one(query, contribution)
    if job not in near:
        near[job] = _common(state, job)
    state.file.database.execute(
        "UPDATE crowd_evidence SET receipt = ? WHERE contribution = ?",
        (_packed(receipt, _unpacked(draw, near[job])), contribution),
    )


def end(state: State, job: str, reason: str) -> None:
    """Contribute no more to this job, and erase unsent submissions."""
    with state.file.transaction():
        state.file.database.execute(
            "UPDATE crowds SET ended = ? WHERE job = ? AND ended IS NULL", (reason, job)
        )
        state.file.database.execute(
            "DELETE FROM crowd_outbox WHERE contribution IN"
            " (SELECT contribution FROM contributions WHERE job = ? AND outcome = 'pending')",
            (job,),
        )
        state.file.database.execute(
            "UPDATE contributions SET outcome = 'unsent' WHERE job = ? AND outcome = 'pending'",
            (job,),
        )
        _forget_nonces(state, job)
    state.file.give_back()


def keep_closing(state: State, job: str, closing: bytes) -> None:
    """Store a job's signed closing, unless another was shown first."""
    with state.file.transaction():
        state.file.database.execute(
            "UPDATE crowds SET closing = ? WHERE job = ? AND closing IS NULL", (closing, job)
        )


def shown_closing(state: State, job: str) -> bytes | None:
    """Return the signed closing of a job that was shown here first, None if none was yet."""
    found: bytes | None
    (found,) = state.file.one("SELECT closing FROM crowds WHERE job = ?", job)
    return found


def unverified(state: State) -> list[str]:
    """Return the crowd jobs that ended here with evidence not yet compared with a closing."""
    rows = state.file.rows(
        "SELECT job FROM crowds WHERE ended IS NOT NULL AND verdict IS NULL"
        " AND EXISTS (SELECT 1 FROM contributions WHERE contributions.job = crowds.job)"
        " ORDER BY rowid"
    )
    return [job for (job,) in rows]


def evidence(state: State, job: str) -> list[Evidence]:
    """Return the trainer's signed documents for each contribution to a job.

    Raises:
        MalformedDocument: it was changed on file.
    """
    near, found = _common(state, job), []
    for contribution, outcome, stored, receipt in state.file.rows(
        "SELECT contribution, outcome, draw, receipt FROM contributions"
        " JOIN crowd_evidence USING (contribution) WHERE job = ? ORDER BY contributions.rowid",
        job,
    ):
        draw = _unpacked(stored, near)
        signed = None if receipt is None else _unpacked(receipt, draw)
        found.append(Evidence(contribution, outcome, draw, signed))
    return found


def conclude(state: State, job: str, *, closing: bytes, verdict: str, kept: Iterable[str]) -> None:
    """Store the verdict on the contributions; erase all evidence except that of `kept`.

    The disk space goes back to the system.
    """
    with state.file.transaction():
        state.file.database.execute(
            "UPDATE crowds SET closing = ?, verdict = ? WHERE job = ?", (closing, verdict, job)
        )
        state.file.database.execute(
            "DELETE FROM crowd_evidence WHERE contribution IN"
            " (SELECT contribution FROM contributions WHERE job = ?)"
            " AND contribution NOT IN (SELECT value FROM json_each(?))",
            (job, json.dumps(list(kept))),
        )
    state.file.give_back()


def statuses(state: State) -> tuple[CrowdStatus, ...]:
    """Return the status of every crowd job that was ever contributed to, in order, in counts."""
    counts: dict[str, dict[str, int]] = {}
    for job, outcome, count in state.file.rows(
        "SELECT job, outcome, COUNT(*) FROM contributions GROUP BY job, outcome"
    ):
        counts.setdefault(job, {})[outcome] = count
    return tuple(
        CrowdStatus(job, ended, counts.get(job, {}), verdict, bool(is_closed))
        for job, ended, verdict, is_closed in state.file.rows(
            "SELECT job, ended, verdict, closing IS NOT NULL FROM crowds ORDER BY rowid"
        )
    )
