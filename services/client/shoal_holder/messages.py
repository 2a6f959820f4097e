"""The closed set of messages between courier and vault.

The courier asks and the vault answers, one message at a time. A message is its name, its fields as
JSON, and byte strings beside them: documents as they were signed, envelopes as they are sent. Both
sides refuse what is not in this module.
"""

from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, Field, StringConstraints

from shoal_protocol.jobs.membership import State
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Count as Count
from shoal_protocol.wire.encoding import Digest, Finite, Name, Timestamp

LARGEST_BYTES: Final = 300 << 20  # a roster of eight million clients

Outcome = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,64}$")]
"""What became of a message: acknowledged, or the code of a refusal."""
Fact = str | Count | Finite | None


class Message(Model):
    """A message, named by its class; `parts` are the byte strings that come with it."""

    parts: tuple[bytes, ...] = Field(default=(), exclude=True, repr=False)


class Event(Model):
    """An event in the vault, for the log: no client, no value."""

    name: str
    facts: dict[str, Fact]


class Answer(Message):
    """A message of the vault's."""

    events: tuple[Event, ...] = ()


class Done(Answer):
    """The vault did what was asked; it is on disk."""


class Refusal(Answer):
    """The vault refuses: the peer's document is wrong, or names nothing that is here."""

    code: Outcome
    detail: str


class Failure(Answer):
    """The vault does not start, or cannot read or write its state.

    The state tells whether the request was done.
    """

    reason: str


# The vault itself


class Standing(BaseModel):
    """How a data holder stands, for its owner alone."""

    isolation: str
    key: str  # the fingerprint of the one in force
    enrolled: Count  # slots
    adopted: Count = 0  # rounds that were forgotten here, and taken for spent
    losses: Count = 0  # of the state file that its owner accepted
    refusal: str | None = None  # why nothing is joined or answered, and what to do
    backup_at: Timestamp | None = None  # when the last one was handed out
    backup_due: bool = False
    records_fault: str | None = None  # why the newest file of records was not taken
    owners_missing: str | None = None  # why no job can be approved


class Opened(Answer, Standing):
    """The first message of a vault that started: how it is isolated, and how many slots it has."""

    sequence: Count  # of the manifest in force
    takes_crowds: bool  # may take part in crowd jobs, or did once
    charging_nodes: tuple[Name, ...] = ()  # to be asked what they charged the slots here
    waiting_for: tuple[Name, ...] = ()  # those of them that did not say it since the start
    is_shut_out: bool = False  # no party takes messages by this key again; `refusal` says why


class Hello(Message):
    """The courier's first message."""


class NextManifest(Message):
    """The manifest version after the one in force, as the authority signed it, and its roster."""

    parts: tuple[bytes, bytes] = Field(exclude=True, repr=False)


# What nodes charged


class ChargesAsked(Answer):
    """The signed query to a node, about its ledger after entry `after`."""

    after: Count
    parts: tuple[bytes] = Field(exclude=True, repr=False)


class AskCharges(Message):
    """Which query is a node to be sent about its charges?

    `behind` is by how many versions of the manifest the node is behind, by its word.
    """

    node: Name
    behind: Count = 0


class Heard(Answer):
    """Whether there is another question to the node."""

    more: bool


class ShowCharges(Message):
    """A node's charges, as it signed them."""

    node: Name
    parts: tuple[bytes] = Field(exclude=True, repr=False)


class SettleCharges(Message):
    """Judge the nodes' charges: nothing is joined or answered before."""


# Jobs and rounds


class OpenJob(Model):
    """A job that clients here take part in, and the number of its next round."""

    job: Digest
    next_number: Count


class OpenRound(Model):
    """A round in which something may remain to be made or sent, as its spec says."""

    round_id: Digest
    manifest: Digest
    opened_at: Timestamp
    deadline: Timestamp
    unprepared: bool  # the answer may be left to make


class Agenda(Answer):
    """The open jobs and rounds; those whose time is over were ended."""

    jobs: tuple[OpenJob, ...]
    rounds: tuple[OpenRound, ...]
    joins: tuple[Digest, ...]  # jobs whose join
    leaves: tuple[Digest, ...]  # or leave nobody has answered
    notices: dict[Digest, State]  # or notice that owners have yet to decide, or did
    waiting: tuple[Digest, ...]  # jobs that owners have yet to decide about


class AskAgenda(Message):
    """Which jobs and rounds are open?"""


class Decided(Answer):
    """The decision on a job or round that was offered; `reason` says why it is not taken.

    A job that is not taken without a reason waits for the owners' approval.
    """

    taken: bool
    reason: str | None = None


class OfferJob(Message):
    """A job that the trainer lists, with its request as the analyst signed it."""

    job: Digest
    parts: tuple[bytes] = Field(exclude=True, repr=False)


class EndJob(Message):
    """The trainer says that a job is over, with its analyst's withdrawal if there is one.

    Accepted unsigned: it costs nobody privacy to answer no more.
    """

    job: Digest
    code: Outcome
    parts: tuple[bytes, ...] = Field(default=(), exclude=True, repr=False, max_length=1)


class OfferRound(Message):
    """A round of a job, its spec as the trainer signed it."""

    parts: tuple[bytes] = Field(exclude=True, repr=False)


class Prepare(Message):
    """Make a round's answer, if one is left to make. The vault answers when it may leave."""

    round_id: Digest


# Sending, and its outcomes

What = Literal["join", "leave", "waits", "approved", "refused", "envelope"]
"""What is sent: of a job to the trainer, or of a round to each node."""
Node = Annotated[int, Field(ge=0, le=255)]


class Bytes(Answer):
    """The documents that were asked for, or what the owner asked for in JSON."""


class Pending(Message):
    """A job's join, leave or notice, or a round's envelope to a node, if it is unanswered."""

    what: What
    about: Digest  # the job or round
    node: Node = 0


class Acknowledged(Message):
    """The receipt query for the envelope that a node acknowledged in a round, if it did."""

    round_id: Digest
    node: Node


class AskSpec(Message):
    """Which documents does a node need that lost a round? Its spec, and its job's request."""

    round_id: Digest


class Receipt(Message):
    """The outcome of what was sent; "lost" means that a node no longer holds an envelope.

    Accepted unsigned: to send the same bytes again, or no more, costs nobody privacy.
    """

    what: What
    about: Digest
    node: Node = 0
    outcome: Outcome


class AskSigned(Message):
    """What the data holder signs now; no part if it is not enrolled, or declares nothing."""

    what: Literal["query", "declaration"]


# Its owner


class Decide(Message):
    """An owner's decision about a job, as it was signed by a key that the policy lists."""

    parts: tuple[bytes] = Field(exclude=True, repr=False)


class AskBackup(Message):
    """A backup for the owner, sealed to a key that is in neither process."""


Question = Literal[
    "status",
    "policy",
    "approvals",
    "joined",
    "leave",
    "crowds",
    "spent on crowds",
    "spent",
    "committed",
    "reserved",
    "chain",
]
"""What an owner may ask. All but "leave" change nothing."""


class Ask(Message):
    """The owner's question, answered in JSON."""

    question: Question
    job: Digest | None = None
    after: Count = 0
    count: int = Field(default=1000, ge=1, le=10_000)


# All of them

MessageT = TypeVar("MessageT", bound=Message)


def kinds_of(*messages: type[MessageT]) -> dict[str, type[MessageT]]:
    """Return messages by their names, as `decode` takes them."""
    return {each.__name__: each for each in messages}


REQUESTS: Final = kinds_of(
    *(Hello, NextManifest, AskCharges, ShowCharges, SettleCharges),
    *(AskAgenda, OfferJob, EndJob, OfferRound, Prepare),
    *(Pending, Acknowledged, AskSpec, Receipt, AskSigned, Decide, AskBackup, Ask),
)
