"""The messages between courier and vault about crowd jobs, beside `shoal_holder.messages`."""

from typing import Final

from pydantic import Field

from shoal_holder.messages import Answer, Count, Message, Outcome, kinds_of
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Digest, Timestamp


class OpenCrowd(Model):
    """An open crowd job; no contribution is due before `next_moment`."""

    job: Digest
    manifest: Digest
    closes_at: Timestamp
    next_moment: Timestamp | None


class CrowdAgenda(Answer):
    """Crowd jobs to go on with, and those that ended here with their closing yet to be judged."""

    jobs: tuple[OpenCrowd, ...]
    known: tuple[Digest, ...]  # that were ever taken, open or not, or wait for the owners
    unvalidated: tuple[Digest, ...]


class AskCrowds(Message):
    """Which crowd jobs are there?"""


class OfferCrowd(Message):
    """A crowd job, its request and its opening as they were signed."""

    job: Digest
    parts: tuple[bytes, bytes] = Field(exclude=True, repr=False)


class EndCrowd(Message):
    """The trainer or the courier ends a crowd job here. This costs nobody privacy."""

    job: Digest
    reason: str = Field(max_length=1000)


class Nonces(Answer):
    """The nonces for the next draws, to be sent at most `portion` at a time."""

    nonces: tuple[Digest, ...]
    portion: Count


class CrowdTurn(Message):
    """Choose clients whose moment has come. The vault answers when their noise is drawn."""

    job: Digest


class Contributed(Answer):
    """How many of the draws were answered: charged, and stored."""

    count: Count


class CrowdDraws(Message):
    """The trainer's draws for the first nonces that it was asked by, as it signed them."""

    job: Digest
    parts: tuple[bytes, ...] = Field(exclude=True, repr=False, min_length=1, max_length=256)


class CrowdPending(Message):
    """Which submissions of a crowd job are unanswered?"""

    job: Digest


class CrowdReceipts(Message):
    """Outcomes of submissions, by digest; the parts are their receipts, empty where none came."""

    job: Digest
    outcomes: dict[Digest, Outcome]
    parts: tuple[bytes, ...] = Field(exclude=True, repr=False)


class ShowClosing(Message):
    """A crowd job's closing, as the trainer signed it; the first that is shown counts."""

    job: Digest
    parts: tuple[bytes] = Field(exclude=True, repr=False)


class WantedLog(Answer):
    """The part of an instance's log that is needed to judge a closing; None: it is judged."""

    instance: Count | None
    after: Count = 0


class ValidateClosing(Message):
    """Begin to compare the evidence kept of a job with the closing that was shown."""

    job: Digest


class ShowLog(Message):
    """The part of an instance's log that was needed, as the trainer sent it."""

    job: Digest
    parts: tuple[bytes] = Field(exclude=True, repr=False)


REQUESTS: Final = kinds_of(
    *(AskCrowds, OfferCrowd, EndCrowd, CrowdTurn, CrowdDraws, CrowdPending),
    *(CrowdReceipts, ShowClosing, ValidateClosing, ShowLog),
)
