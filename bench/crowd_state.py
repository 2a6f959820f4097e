"""Prints what a contribution to a crowd takes in an agent's state file, before and after a closing.

python -m bench.crowd_state
"""

import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from nacl.signing import SigningKey

from shoal_holder.crowds import memory
from shoal_holder.crowds.memory import Prepared
from shoal_holder.crowds.records_used import Limits
from shoal_holder.state import State
from shoal_protocol.crowds.documents import (
    CrowdOpening,
    Draw,
    LogEntry,
    Submission,
    SubmissionReceipt,
)
from shoal_protocol.privacy.accounting import Cap, Cost
from shoal_protocol.wire.documents import Role, sign

CONTRIBUTIONS = 10_000
CLIENTS = TOGETHER = 50  # the contributions of a batch are of different clients
WEIGHTS = 6
JOB = "c0" * 32
NOW = datetime(2026, 3, 2, tzinfo=UTC)
LIMITS = Limits(
    cost=Cost.pure(1e-3),
    per_client=CONTRIBUTIONS,
    per_record=CONTRIBUTIONS,
    cap=Cap(epsilon=1e3, delta=1e-6),
    record_cap=Cap(epsilon=1e3, delta=0.0),
)


def signed_opening(key: SigningKey) -> bytes:
    """Return an opening of real form."""
    opening = CrowdOpening(
        manifest="ab" * 32,
        job=JOB,
        commitment="cd" * 32,
        instances=((0,) * WEIGHTS,) * 20,
        opened_at=NOW,
    )
    return sign(opening, Role.TRAINER, key).encode()


def contribute(state: State, key: SigningKey) -> None:
    """Charge, store and settle one contribution of each client, with documents of real sizes."""
    prepared, receipts = [], {}
    for client in range(CLIENTS):
        nonce, weights = (
            secrets.token_hex(32),
            tuple(secrets.randbelow(2**21) for _ in range(WEIGHTS)),
        )
        drawn = Draw(
            manifest="ab" * 32,
            job=JOB,
            nonce=nonce,
            instance=7,
            revision=1234,
            weights=weights,
            expires_at=NOW + timedelta(minutes=10),
        )
        draw = sign(drawn, Role.TRAINER, key)
        submission = sign(
            Submission(manifest="ab" * 32, client=client, draw=draw, weights=weights),
            Role.CLIENT,
            key,
        )
        entry = LogEntry(
            job=JOB,
            instance=3,
            revision=1234,
            previous=secrets.token_hex(32),
            nonce=nonce,
            weights=secrets.token_hex(32),
        )
        receipt = sign(SubmissionReceipt(manifest="ab" * 32, entry=entry), Role.TRAINER, key)
        document = submission.encode()
        receipts[document] = receipt.encode()
        prepared.append(Prepared(client, 0, submission.digest, draw.encode(), document))
    if not all(memory.charge(state, JOB, prepared, limits=LIMITS, now=NOW)):
        raise RuntimeError("a contribution was not charged: the limits are too low")
    waiting = memory.pending(state, JOB, count=TOGETHER)
    memory.settle(state, [(each, "acknowledged", receipts[document]) for each, document in waiting])


@contextmanager
def opened(path: Path, opening: bytes) -> Iterator[State]:
    """Yield a state of its own, which takes part in one crowd job."""
    state = State(path, authority="e" * 64)
    try:
        memory.add(state, JOB, b"request", opening)
        yield state
    finally:
        state.close()


def main() -> int:
    """Print bytes for a contribution, of the file and of what is in use of it."""
    key = SigningKey.generate()
    with TemporaryDirectory() as directory, ExitStack() as stack:
        file = Path(directory) / "holder.sqlite"
        state = stack.enter_context(opened(file, signed_opening(key)))
        for _ in range(CONTRIBUTIONS // CLIENTS):
            contribute(state, key)
        log = Path(f"{file}-wal").stat().st_size
        memory.end(state, JOB, "over")
        before = file.stat().st_size
        (evidence,) = state.file.one(
            "SELECT SUM(length(draw) + length(receipt)) FROM crowd_evidence"
        )
        memory.conclude(state, JOB, closing=b"closing", verdict="borne out", kept=())
        state.file.truncate_log()
        print(f"{CONTRIBUTIONS:,} contributions, bytes for each:")
        print(f"state file {before / CONTRIBUTIONS:,.0f}, draw and receipt in it", end=" ")
        print(f"{evidence / CONTRIBUTIONS:,.0f}")
        print(
            f"state file, once the closing was compared: {file.stat().st_size / CONTRIBUTIONS:,.0f}"
        )
        state.file.rows("VACUUM")
        state.file.truncate_log()
        print(f"the same, rewritten by VACUUM: {file.stat().st_size / CONTRIBUTIONS:,.0f}")
        print(f"write-ahead log while it runs: {log:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
