"""The messages between courier and vault about crowd jobs, beside `shoal_holder.messages`."""

from typing import ClassVar, Final, Literal

from pydantic import Field

from shoal_holder.messages import Answer, Count, Decided, Done, Message, Outcome, Told, kinds_of
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Digest, Timestamp


class OpenCrowd(Model):
    """An open crowd job; no contribution is due before `next_moment`."""

    job: Digest
    manifest: Digest
    closes_at: Timestamp
    next_moment: Timestamp | None
    waiting: bool  # a submission is unanswered


class CrowdAgenda(Answer):
    """Crowd jobs to go on with, and those that ended here with their closing yet to be judged."""

    kind: Literal["crowd_agenda"] = "crowd_agenda"
    jobs: tuple[OpenCrowd, ...]
    known: tuple[Digest, ...]  # that were ever taken, open or not, or wait for the owners
    unvalidated: tuple[Digest, ...]


class AskCrowds(Message):
    """Which crowd jobs are there?"""

    kind: Literal["ask_crowds"] = "ask_crowds"
    answer: ClassVar[type[Answer]] = CrowdAgenda


class OfferCrowd(Message):
    """A crowd job, its request and its opening as they were signed."""

    kind: Literal["offer_crowd"] = "offer_crowd"
    job: Digest
    parts: tuple[bytes, bytes] = Field(exclude=True, repr=False)
    answer: ClassVar[type[Answer]] = Decided


class EndCrowd(Message):
    """The trainer or the courier ends a crowd job here. This costs nobody privacy."""

    kind: Literal["end_crowd"] = "end_crowd"
    job: Digest
    reason: str = Field(max_length=1000)
    answer: ClassVar[type[Answer]] = Done


class Nonces(Answer):
    """The nonces for the next draws, to be sent at most `portion` at a time."""

    kind: Literal["nonces"] = "nonces"
    nonces: tuple[Digest, ...]
    portion: Count


class CrowdTurn(Message):
    """Choose clients whose moment has come. The vault answers when their noise is drawn."""

    kind: Literal["crowd_turn"] = "crowd_turn"
    job: Digest
    answer: ClassVar[type[Answer]] = Nonces


class Contributed(Answer):
    """How many of the draws were answered: charged, and stored."""

    kind: Literal["contributed"] = "contributed"
    count: Count


class CrowdDraws(Message):
    """The trainer's draws for the first nonces that it was asked by, as it signed them."""

    kind: Literal["crowd_draws"] = "crowd_draws"
    job: Digest
    parts: tuple[bytes, ...] = Field(exclude=True, repr=False, min_length=1, max_length=256)
    answer: ClassVar[type[Answer]] = Contributed


class Submissions(Answer):
    """Signed submissions that the trainer has not answered."""

    kind: Literal["submissions"] = "submissions"


class CrowdPending(Message):
    """Which submissions of a crowd job are unanswered?"""

    kind: Literal["crowd_pending"] = "crowd_pending"
    job: Digest
    answer: ClassVar[type[Answer]] = Submissions


class CrowdReceipt(Model):
    """The outcome of a submission, by its digest."""

    submission: Digest
    outcome: Outcome


class CrowdReceipts(Message):
    """The outcomes of submissions; the parts are their receipts, empty where none came."""

    kind: Literal["crowd_receipts"] = "crowd_receipts"
    job: Digest
    receipts: tuple[CrowdReceipt, ...]
    parts: tuple[bytes, ...] = Field(exclude=True, repr=False)
    answer: ClassVar[type[Answer]] = Done


class ShowClosing(Message):
    """A crowd job's closing, as the trainer signed it; the first that is shown counts."""

    kind: Literal["show_closing"] = "show_closing"
    job: Digest
    parts: tuple[bytes] = Field(exclude=True, repr=False)
    answer: ClassVar[type[Answer]] = Done


class WantedLog(Answer):
    """The part of an instance's log that is needed to judge a closing; None: it is judged."""

    kind: Literal["wanted_log"] = "wanted_log"
    instance: Count | None
    after: Count = 0


class ValidateClosing(Message):
    """Begin to compare the evidence kept of a job with the closing that was shown."""

    kind: Literal["validate_closing"] = "validate_closing"
    job: Digest
    answer: ClassVar[type[Answer]] = WantedLog


class ShowLog(Message):
    """The entries of an instance's log that were needed, as a list in JSON."""

    kind: Literal["show_log"] = "show_log"
    job: Digest
    parts: tuple[bytes] = Field(exclude=True, repr=False)
    answer: ClassVar[type[Answer]] = WantedLog


class AskOfCrowds(Message):
    """The owner's question about crowd jobs, answered in JSON."""

    kind: Literal["ask_of_crowds"] = "ask_of_crowds"
    question: Literal["statuses", "spent"]
    answer: ClassVar[type[Answer]] = Told


REQUESTS: Final = kinds_of(
    *(AskCrowds, OfferCrowd, EndCrowd, CrowdTurn, CrowdDraws, CrowdPending),
    *(CrowdReceipts, ShowClosing, ValidateClosing, ShowLog, AskOfCrowds),
)
