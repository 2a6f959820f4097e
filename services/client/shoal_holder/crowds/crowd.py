"""A crowd job whose documents were checked; verifies its draws and receipts."""

from dataclasses import dataclass
from typing import Final

import pydantic

from shoal_holder.crowds.status import WRONG_RECEIPT
from shoal_kit.outcome import ACKNOWLEDGED
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    LogEntry,
    Submission,
    SubmissionReceipt,
    check_draw,
    weights_digest,
)
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed, decode, describe
from shoal_protocol.wire.encoding import Count, check_values
from shoal_protocol.wire.errors import MalformedDocument

_MOST_VALUES: Final = 1 << 16  # of a page of a log, which has a thousand entries at most


@dataclass(frozen=True)
class Crowd:
    """A crowd job that was checked, and the manifest version that it is bound to."""

    request: CrowdJobRequest
    opening: CrowdOpening
    consortium: Consortium
    closing: bytes | None = None  # the one on file when it was read from there

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
    check_draw(draw.body, crowd.request, nonce=nonce)
    return draw


def checked_closing(crowd: Crowd, document: bytes) -> Signed[CrowdClosing]:
    """Return a job's closing. Whether it follows from the opening is `check_closing`'s to say.

    Raises:
        ProtocolError: it is another job's, or not signed by the trainer under its manifest.
    """
    signed = decode(document, CrowdClosing)
    crowd.consortium.verify(signed)
    if signed.body.job != crowd.job:  # closings of other jobs are public
        raise MalformedDocument("the closing is another job's")
    return signed


class LogPage(pydantic.BaseModel):
    """A part of an instance's log."""

    entries: list[LogEntry]
    next: Count | None

    @classmethod
    def read(cls, document: bytes) -> "LogPage":
        """Return a page as the trainer sent it.

        Raises:
            MalformedDocument: it is none.
        """
        check_values(document, _MOST_VALUES)
        try:
            return cls.model_validate_json(document)
        except pydantic.ValidationError as error:
            raise MalformedDocument(describe(error, cls)) from None


def acknowledged(crowd: Crowd, submission: Submission, receipt: bytes) -> str:
    """Return the outcome of a submission by its receipt: it may be another submission's.

    Raises:
        ProtocolError: the trainer did not sign it under the job's manifest.
    """
    signed = decode(receipt, SubmissionReceipt)
    crowd.consortium.verify(signed)
    entry = signed.body.entry
    due = crowd.job, submission.draw.body.nonce, weights_digest(submission.weights)
    return ACKNOWLEDGED if (entry.job, entry.nonce, entry.weights) == due else WRONG_RECEIPT
