"""The signed documents of a crowd job, from its request and opening to its closing.

In the opening the trainer commits to a seed. The seed and a client's own random nonce determine
which instance is drawn and which is replaced; the closing reveals the seed. Every replacement is a
link in its instance's hash chain. So a client that kept a draw or a receipt can tell whether the
trainer cheated.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from shoal_protocol.crowds.tasks import LARGEST_WEIGHT, CrowdTask
from shoal_protocol.jobs.membership import JobEnding
from shoal_protocol.privacy.ledger import GENESIS
from shoal_protocol.wire.documents import WRITTEN, BoundDocument, Model, Role, Signed, embedded
from shoal_protocol.wire.encoding import (
    LARGEST_CLIENT_INDEX,
    MOST_VALUES,
    Digest,
    Name,
    NonceHex,
    Timestamp,
    canonical_json,
    sha256,
)

Weight = Annotated[int, Field(ge=-LARGEST_WEIGHT, le=LARGEST_WEIGHT, strict=True)]
Weights = Annotated[tuple[Weight, ...], Field(min_length=1, max_length=512)]
"""One instance's weights, shape (p,), on the lattice of its task."""

InstanceIndex = Annotated[int, Field(ge=0, lt=10_000, strict=True)]
Revision = Annotated[int, Field(ge=0, lt=2**53, strict=True)]
"""How often an instance was replaced."""

DrawNonce = Digest  # 32 random bytes of a client, in hex


class CrowdJobRequest(BoundDocument):
    """Analyst -> trainer: the task of a crowd, the number of contributions, and the closing time.

    A client contributes at most `contributions_per_client` times, with each of its records at most
    `contributions_per_record` times. A draw may be answered for `session_seconds`. The job closes
    after `contributions` of them, or at `closes_at`.
    """

    signed_by: ClassVar[Role] = Role.ANALYST
    signer_field: ClassVar[str | None] = "analyst"

    kind: Literal["crowd_job_request"] = "crowd_job_request"
    nonce: NonceHex  # tells two otherwise equal requests apart
    analyst: Name
    task: CrowdTask
    contributions: int = Field(ge=1, le=10**12)
    contributions_per_client: int = Field(ge=1, le=1_000_000)
    contributions_per_record: int = Field(ge=1, le=1_000_000)
    session_seconds: int = Field(ge=1, le=86_400)
    closes_at: Timestamp

    @model_validator(mode="after")
    def _counts_agree(self) -> Self:
        if self.contributions_per_record > self.contributions_per_client:
            raise ValueError("contributions_per_record is above contributions_per_client")
        return self

    @property
    def client_epsilon(self) -> float:
        """Pure epsilon of all that one client may contribute to the job."""
        return self.contributions_per_client * self.task.contribution_epsilon

    @property
    def record_epsilon(self) -> float:
        """Pure epsilon of all that one record may contribute to the job."""
        return self.contributions_per_record * self.task.contribution_epsilon


class CrowdOpening(BoundDocument):
    """Trainer -> all: the job is open, with these first instances and a commitment to the seed.

    `instances`, shape (k, p), depend on no data.
    """

    signed_by: ClassVar[Role] = Role.TRAINER
    most_values: ClassVar[int] = MOST_VALUES

    kind: Literal["crowd_opening"] = "crowd_opening"
    job: Digest
    commitment: Digest  # to the seed: `draws.commitment`
    instances: tuple[Weights, ...] = Field(min_length=1, max_length=10_000)
    opened_at: Timestamp


class Draw(BoundDocument):
    """Trainer -> sender of the nonce: one instance's weights. The trainer keeps no state of it."""

    signed_by: ClassVar[Role] = Role.TRAINER

    kind: Literal["draw"] = "draw"
    job: Digest
    nonce: DrawNonce
    instance: InstanceIndex
    revision: Revision
    weights: Weights
    expires_at: Timestamp  # a submission that arrives later is refused


SignedDraw = Annotated[Signed[Draw], embedded(Draw), WRITTEN]


class Submission(BoundDocument):
    """Client -> trainer: the weights of a draw after one noised step on a record."""

    signed_by: ClassVar[Role] = Role.CLIENT

    kind: Literal["submission"] = "submission"
    client: int = Field(ge=0, le=LARGEST_CLIENT_INDEX)
    draw: SignedDraw
    weights: Weights


class LogEntry(Model):
    """One replacement of an instance: a link of the instance's hash chain. It names no client."""

    job: Digest
    instance: InstanceIndex
    revision: Annotated[int, Field(ge=1, lt=2**53, strict=True)]  # without gaps
    previous: Digest
    nonce: DrawNonce  # of the draw that was answered
    weights: Digest  # `weights_digest` of what the instance became

    @model_validator(mode="after")
    def _begins_at_the_beginning(self) -> Self:
        if (self.revision == 1) != (self.previous == GENESIS):
            raise ValueError("revision 1 of an instance, and no other, names none before it")
        return self

    @property
    def digest(self) -> str:
        """Return the SHA-256 digest that the next entry names, in hex."""
        return sha256("crowd_log_entry", canonical_json(self.model_dump(mode="json")))


class SubmissionReceipt(BoundDocument):
    """Trainer -> client: the submission is on file, as this link of an instance's chain."""

    signed_by: ClassVar[Role] = Role.TRAINER

    kind: Literal["submission_receipt"] = "submission_receipt"
    entry: LogEntry


class InstanceHead(Model):
    """An instance at the closing: its number of replacements, last log entry, and weights."""

    revision: Revision
    digest: Digest  # of the last entry; 64 zeros if there is none
    weights: Weights


class CrowdClosingRequest(JobEnding):
    """Analyst -> trainer: close the job now, whatever was contributed so far.

    There is one such document for a job, so asking again is asking the same.
    """

    kind: Literal["crowd_closing_request"] = "crowd_closing_request"


SignedClosingRequest = Annotated[
    Signed[CrowdClosingRequest], embedded(CrowdClosingRequest), WRITTEN
]


class CrowdClosing(BoundDocument):
    """Trainer -> all: the job is closed, with each instance's last state and the seed of all draws.

    Before its time and its number of contributions, only an analyst may close a job: then
    `closing_request` is what she signed, else None.
    """

    signed_by: ClassVar[Role] = Role.TRAINER
    most_values: ClassVar[int] = MOST_VALUES

    kind: Literal["crowd_closing"] = "crowd_closing"
    job: Digest
    seed: Digest
    heads: tuple[InstanceHead, ...] = Field(min_length=1, max_length=10_000)
    contributions: int = Field(ge=0, lt=2**53)
    closed_at: Timestamp
    closing_request: SignedClosingRequest | None

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if sum(head.revision for head in self.heads) != self.contributions:
            raise ValueError("the revisions of all instances must add up to contributions")
        return self

    def __str__(self) -> str:
        asked = self.closing_request
        by = "in due course" if asked is None else f"early, as {asked.body.analyst} asked"
        when = f"{self.closed_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"Closed {when}, {by}, after {self.contributions:,} contributions."


def weights_digest(weights: Sequence[int]) -> str:
    """Return the digest, in hex, that names an instance's weights."""
    return sha256("crowd_weights", canonical_json([int(weight) for weight in weights]))
