"""A crowd job whose documents were checked; verifies its draws and receipts."""

from dataclasses import dataclass

from shoal_holder.crowds.status import WRONG_RECEIPT
from shoal_hosting.outcome import ACKNOWLEDGED
from shoal_protocol.crowds.draws import (
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    Submission,
    SubmissionReceipt,
    check_draw,
    weights_digest,
)
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import ProtocolError


@dataclass(frozen=True)
class Crowd:
    """A crowd job that was checked, and the manifest version that it is bound to."""

    request: CrowdJobRequest
    opening: CrowdOpening
    consortium: Consortium

    @property
    def job(self) -> str:
        """Return the job's id."""
        return self.request.digest


def verified(draw: Signed[Draw], crowd: Crowd, nonce: str) -> Signed[Draw]:
    """Return a draw that the trainer signed in answer to `nonce`.

    Raises:
        RefusedDraw: it cannot be one; the detail says why.
        ProtocolError: the trainer did not sign it under the job's manifest.
    """
    crowd.consortium.verify(draw)
    check_draw(draw.body, crowd.opening, nonce=nonce)
    return draw


@dataclass(frozen=True)
class Sent:
    """A submission that is under way: its bytes, and the nonce and weights that a receipt names."""

    document: bytes
    nonce: str
    weights: str  # `weights_digest`

    @classmethod
    def of(cls, submission: Signed[Submission]) -> "Sent":
        """Return a submission as it is sent."""
        body = submission.body
        return cls(submission.encode(), body.draw.body.nonce, weights_digest(body.weights))


@dataclass(frozen=True)
class Outcome:
    """The outcome of a submission: "acknowledged" with the receipt, or the code of a refusal."""

    outcome: str
    receipt: bytes | None = None


def judged(crowd: Crowd, sent: Sent, outcome: str, told: bytes) -> Outcome:
    """Return an outcome; for a submission that was taken, with whatever the trainer signed."""
    if outcome not in (ACKNOWLEDGED, WRONG_RECEIPT):
        return Outcome(outcome)
    try:
        signed = decode(told, SubmissionReceipt)
        crowd.consortium.verify(signed)
    except ProtocolError:
        return Outcome(WRONG_RECEIPT)
    entry = signed.body.entry
    fits = (entry.job, entry.nonce, entry.weights) == (crowd.job, sent.nonce, sent.weights)
    return Outcome(ACKNOWLEDGED if fits else WRONG_RECEIPT, signed.encode())
