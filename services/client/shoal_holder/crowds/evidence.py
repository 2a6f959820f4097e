"""Reads from the state the documents of a crowd job that the trainer showed this data holder."""

from dataclasses import replace

from shoal_holder.crowds import memory
from shoal_holder.crowds.status import CrowdStatus
from shoal_holder.state import State
from shoal_protocol.crowds.documents import CrowdClosing, CrowdOpening, Draw, SubmissionReceipt
from shoal_protocol.crowds.evidence import CrowdEvidence, fingerprint
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.encoding import sha256


def shown_here(state: State, job: str, *, receipts: bool) -> CrowdEvidence | None:
    """Return the opening and the closing, and draws and `receipts` if asked; None if unknown.

    Draws and receipts are there until a closing bore them out, and for good where it did not.
    """
    row = state.file.one("SELECT opening, closing FROM crowds WHERE job = ?", job)
    if row is None:
        return None
    opening, closing = row
    kept = memory.evidence(state, job) if receipts else []
    return CrowdEvidence(
        opening=decode(opening, CrowdOpening),
        closing=None if closing is None else decode(closing, CrowdClosing),
        draws=tuple(decode(each.draw, Draw) for each in kept),
        receipts=tuple(
            decode(each.receipt, SubmissionReceipt) for each in kept if each.receipt is not None
        ),
    )


def statuses(state: State) -> tuple[CrowdStatus, ...]:
    """Return the status of every crowd job that was ever contributed to, with fingerprints."""
    shown = {
        job: (_fingerprint("crowd_opening", opening), _fingerprint("crowd_closing", closing))
        for job, opening, closing in state.file.rows("SELECT job, opening, closing FROM crowds")
    }
    return tuple(
        replace(each, opening=shown[each.job][0], closing=shown[each.job][1])
        for each in memory.statuses(state)
    )


def _fingerprint(kind: str, encoded: bytes | None) -> str | None:
    """Return a stored document's fingerprint, without decoding: its body's bytes are canonical.

    An opening may hold a million digits, and a status is asked for often.
    """
    if encoded is None:
        return None
    body = encoded[len(b'{"body":') : encoded.rindex(b',"signature":')]
    return fingerprint(sha256(kind, body))
