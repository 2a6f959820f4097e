"""Stores how jobs end here, signs leaves, and reads the budgets that open jobs reserve.

A job ends here once, for all slots of the data holder together.
"""

from dataclasses import dataclass
from typing import Final

from nacl.signing import SigningKey

from shoal_holder.state_file import StateFile
from shoal_hosting.outcome import ACKNOWLEDGED, PENDING
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.jobs.membership import Leave
from shoal_protocol.wire.documents import Role, decode, sign
from shoal_protocol.wire.encoding import decode_clients, format_time
from shoal_protocol.wire.errors import UnknownJob, WrongPhase

LEFT: Final = "left"
"""Why a job has ended here that its owner left."""


@dataclass(frozen=True)
class Joined:
    """A job that was joined, whose records it may use, and how many of its rounds were answered."""

    job: str
    request: bytes
    ended: str | None
    slots: int
    answered: int


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


def store(file: StateFile, job: str, leave: bytes | None, withdrawal: bytes | None) -> None:
    """Store how a job ended, in the caller's transaction."""
    if leave is not None:
        file.database.execute(
            "INSERT OR IGNORE INTO leaves VALUES (?, ?, ?)", (job, leave, PENDING)
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
    found = file.one(
        "SELECT request, ended, slots FROM jobs JOIN joins USING (job) WHERE job = ?", job
    )
    if found is None:
        raise UnknownJob("this data holder has not joined such a job")
    (answered,) = file.one("SELECT COUNT(DISTINCT place) FROM ledger WHERE job = ?", job)
    request, ended, slots = found
    return Joined(job, request, ended, len(decode_clients(slots)), answered)


def sign_leave(found: Joined, holder: int | None, key: SigningKey) -> bytes | None:
    """Return the signed leave of a data holder, None if no roster names it.

    Raises:
        WrongPhase: the job has ended here, other than by being left.
    """
    if found.ended not in (None, LEFT):
        raise WrongPhase(f"the job has ended here already ({found.ended}), and holds no budget")
    if holder is None:
        return None
    manifest = decode(found.request, JobRequest).body.manifest
    return sign(Leave(manifest=manifest, job=found.job, holder=holder), Role.HOLDER, key).encode()


def pending(file: StateFile) -> dict[str, bytes]:
    """Return the signed leaves that nobody has answered, by job."""
    return dict(
        file.rows("SELECT job, document FROM leaves WHERE outcome = ? ORDER BY job", PENDING)
    )


def settle(file: StateFile, job: str, outcome: str) -> None:
    """Record the outcome of a leave."""
    with file.transaction():
        file.database.execute(
            "UPDATE leaves SET outcome = ? WHERE job = ? AND outcome = ?", (outcome, job, PENDING)
        )


def reserved(file: StateFile) -> list[ReservedBudget]:
    """Return what open jobs hold of their slots' budgets, in the order of joining."""
    rows = file.rows(
        "SELECT job, request, mu, epsilon, slots FROM jobs JOIN joins USING (job)"
        " WHERE ended IS NULL AND outcome IN (?, ?) ORDER BY jobs.rowid",
        PENDING,
        ACKNOWLEDGED,
    )
    return [
        ReservedBudget(
            job,
            len(decode_clients(slots)),
            mu,
            epsilon,
            format_time(decode(request, JobRequest).body.ends_by),
        )
        for job, request, mu, epsilon, slots in rows
    ]
