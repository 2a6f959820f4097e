"""Stores how jobs end here, signs leaves, and reads the budgets that open jobs reserve.

A job ends here once; which of its clients leave does not depend on their records.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from nacl.signing import SigningKey

from shoal_holder.state_file import StateFile
from shoal_hosting.outcome import ACKNOWLEDGED, PENDING
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.jobs.membership import Leave
from shoal_protocol.wire.documents import Role, decode, sign
from shoal_protocol.wire.encoding import format_time
from shoal_protocol.wire.errors import UnknownJob, WrongPhase

LEFT: Final = "left"
"""Why a job has ended here that its owner left."""


@dataclass(frozen=True)
class Joined:
    """A job that was joined, its clients, and how many of its rounds they answered."""

    job: str
    request: bytes
    ended: str | None
    clients: tuple[int, ...]
    answered: int


@dataclass(frozen=True)
class ReservedBudget:
    """The budget, in mu or pure epsilon, that an open job reserves of each client, and until when.

    It is all of a job's price, its rounds' costs so far included; `epsilon` None is infinite.
    """

    job: str
    clients: int
    mu: float
    epsilon: float | None
    until: str


def store(
    file: StateFile, job: str, leaves: Iterable[tuple[int, bytes]], withdrawal: bytes | None
) -> None:
    """Store how a job ended, in the caller's transaction."""
    file.database.executemany(
        "INSERT OR IGNORE INTO leaves VALUES (?, ?, ?, ?)",
        ((job, client, document, PENDING) for client, document in leaves),
    )
    if withdrawal is not None:
        file.database.execute("INSERT OR IGNORE INTO withdrawals VALUES (?, ?)", (job, withdrawal))


def has_ended(file: StateFile, job: str) -> bool:
    """Tell whether a job has ended here."""
    return file.one("SELECT 1 FROM jobs WHERE job = ? AND ended IS NOT NULL", job) is not None


def joined(file: StateFile, job: str) -> Joined:
    """Return a job that was joined.

    Raises:
        UnknownJob
    """
    found = file.one("SELECT request, ended FROM jobs WHERE job = ?", job)
    if found is None:
        raise UnknownJob("no client here has joined such a job")
    rows = file.rows(
        "SELECT client FROM joins WHERE job = ? AND outcome IN (?, ?) ORDER BY client",
        job,
        PENDING,
        ACKNOWLEDGED,
    )
    (answered,) = file.one("SELECT COUNT(DISTINCT number) FROM charged WHERE job = ?", job)
    request, ended = found
    return Joined(job, request, ended, tuple(client for (client,) in rows), answered)


def sign_leaves(found: Joined, own: Collection[int], key: SigningKey) -> list[tuple[int, bytes]]:
    """Return (client, signed leave) of all clients of a job that are its holder's `own`.

    Raises:
        WrongPhase: the job has ended here, other than by being left.
    """
    if found.ended not in (None, LEFT):
        raise WrongPhase(f"the job has ended here already ({found.ended}), and holds no budget")
    manifest = decode(found.request, JobRequest).body.manifest
    return [
        (
            client,
            sign(Leave(manifest=manifest, job=found.job, client=client), Role.CLIENT, key).encode(),
        )
        for client in found.clients
        if client in own
    ]


def pending(file: StateFile) -> dict[str, list[tuple[int, bytes]]]:
    """Return (client, signed leave) of the unanswered leaves, by job."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    for job, client, document in file.rows(
        "SELECT job, client, document FROM leaves WHERE outcome = ? ORDER BY job, client", PENDING
    ):
        found.setdefault(job, []).append((client, document))
    return found


def settle(file: StateFile, job: str, outcomes: Iterable[tuple[int, str]]) -> None:
    """Record (client, outcome) for leaves."""
    with file.transaction():
        file.database.executemany(
            "UPDATE leaves SET outcome = ? WHERE job = ? AND client = ? AND outcome = ?",
            ((outcome, job, client, PENDING) for client, outcome in outcomes),
        )


def reserved(file: StateFile) -> list[ReservedBudget]:
    """Return what open jobs hold of their clients' budgets, in the order of joining."""
    rows = file.rows(
        "SELECT job, request, mu, epsilon, (SELECT COUNT(*) FROM joins WHERE joins.job = jobs.job"
        " AND outcome IN (?, ?)) FROM jobs WHERE ended IS NULL ORDER BY rowid",
        PENDING,
        ACKNOWLEDGED,
    )
    return [
        ReservedBudget(
            job, clients, mu, epsilon, format_time(decode(request, JobRequest).body.ends_by)
        )
        for job, request, mu, epsilon, clients in rows
    ]
