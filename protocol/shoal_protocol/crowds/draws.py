"""The signed documents of a crowd job, the draws that follow from them, and their checks.

In the opening the trainer commits to a seed. The seed and a client's own random nonce determine
which instance is drawn and which is replaced. The trainer is committed before any nonce is made,
so it can steer neither choice. The client does not know the seed, so neither can it. The closing
reveals the seed, and every replacement is a link in its instance's hash chain. So a client that
kept a draw or a receipt can tell whether the trainer cheated.
"""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from shoal_protocol.crowds.tasks import LARGEST_WEIGHT, CrowdTask, first_weights
from shoal_protocol.jobs.membership import JobWithdrawal, check_ending
from shoal_protocol.journal import GENESIS
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.trust.policy import CLOCKS_APART, TimeLimits
from shoal_protocol.wire.documents import (
    AnalystDocument,
    BoundDocument,
    Embedded,
    Model,
    Role,
    Signed,
    TrainerDocument,
)
from shoal_protocol.wire.encoding import (
    LARGEST_CLIENT_INDEX,
    MOST_VALUES,
    Digest,
    NonceHex,
    Timestamp,
    canonical_json,
    domain,
    sha256,
)
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError, RefusedJob


class RefusedDraw(ProtocolError):
    title = "The draw is refused"
    status = 422
    remedy = "Draw again; if it happens twice, tell the consortium that the trainer cheats."


class CrowdClosed(ProtocolError):
    title = "The crowd job is closed"
    status = 410
    remedy = "Ask for its closing; contribute to another job."


Weight = Annotated[int, Field(ge=-LARGEST_WEIGHT, le=LARGEST_WEIGHT, strict=True)]
Weights = Annotated[tuple[Weight, ...], Field(min_length=1, max_length=512)]
"""One instance's weights, shape (p,), on the lattice of its task."""

InstanceIndex = Annotated[int, Field(ge=0, lt=10_000, strict=True)]
Revision = Annotated[int, Field(ge=0, lt=2**53, strict=True)]
"""How often an instance was replaced."""

DrawNonce = Digest  # 32 random bytes of a client, in hex


class CrowdJobRequest(AnalystDocument):
    """Analyst -> trainer: the task of a crowd, the number of contributions, and the closing time.

    A client contributes at most `contributions_per_client` times. A draw may be answered for
    `session_seconds`. The job closes after `contributions` of them, or at `closes_at`.
    """

    kind: Literal["crowd_job_request"] = "crowd_job_request"
    nonce: NonceHex  # tells two otherwise equal requests apart
    task: CrowdTask
    contributions: int = Field(ge=1, le=10**12)
    contributions_per_client: int = Field(ge=1, le=1_000_000)
    session_seconds: int = Field(ge=1, le=86_400)
    closes_at: Timestamp

    @property
    def client_epsilon(self) -> float:
        """Pure epsilon of all that one client may contribute to the job."""
        return self.contributions_per_client * self.task.contribution_epsilon


class CrowdOpening(TrainerDocument):
    """Trainer -> all: the job is open, with a commitment to the seed.

    Every instance begins with the task's `first_weights`.
    """

    kind: Literal["crowd_opening"] = "crowd_opening"
    job: Digest
    commitment: Digest  # to the seed: `draws.commitment`
    opened_at: Timestamp


class Draw(TrainerDocument):
    """Trainer -> sender of the nonce: one instance's weights. The trainer keeps no state of it."""

    kind: Literal["draw"] = "draw"
    job: Digest
    nonce: DrawNonce
    instance: InstanceIndex
    revision: Revision
    weights: Weights
    expires_at: Timestamp  # a submission that arrives later is refused


class Submission(BoundDocument):
    """Client -> trainer: the weights of a draw after one noised step on its records."""

    signed_by: ClassVar[Role] = Role.CLIENT

    kind: Literal["submission"] = "submission"
    client: int = Field(ge=0, le=LARGEST_CLIENT_INDEX)
    draw: Embedded[Draw]
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


class SubmissionReceipt(TrainerDocument):
    """Trainer -> client: the submission is on file, as this link of an instance's chain."""

    kind: Literal["submission_receipt"] = "submission_receipt"
    entry: LogEntry


class InstanceHead(Model):
    """An instance at the closing: its number of replacements, last log entry, and weights."""

    revision: Revision
    digest: Digest  # of the last entry; 64 zeros if there is none
    weights: Weights


class CrowdClosing(TrainerDocument):
    """Trainer -> all: the job is closed, with each instance's last state and the seed of all draws.

    Before its time and its number of contributions, only an analyst may close a job: then
    `closing_request` is what she signed, else None.
    """

    most_values: ClassVar[int] = MOST_VALUES

    kind: Literal["crowd_closing"] = "crowd_closing"
    job: Digest
    seed: Digest
    heads: tuple[InstanceHead, ...] = Field(min_length=1, max_length=10_000)
    contributions: int = Field(ge=0, lt=2**53)
    closed_at: Timestamp
    closing_request: Embedded[JobWithdrawal] | None

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


def commitment(seed: bytes) -> str:
    """Return the digest, in hex, by which an opening commits to a seed of 32 random bytes."""
    return sha256("crowd_seed", seed)


def drawn_instance(seed: bytes, nonce: str, instances: int) -> int:
    """Return which of so many instances a draw with this nonce, in hex, gives."""
    return _chosen(seed, "crowd_draw", nonce, instances)


def replaced_instance(seed: bytes, nonce: str, instances: int) -> int:
    """Return which of so many instances the answer to this nonce replaces."""
    return _chosen(seed, "crowd_replacement", nonce, instances)


def _chosen(seed: bytes, kind: str, nonce: str, instances: int) -> int:
    """Return an integer below `instances`: HMAC-SHA256 (RFC 2104), which 2^-240 at most biases."""
    found = hmac.digest(seed, domain(kind) + bytes.fromhex(nonce), hashlib.sha256)
    return int.from_bytes(found, "big") % instances


def check_opening(opening: CrowdOpening, request: CrowdJobRequest) -> None:
    """Refuse an opening that is not this job's.

    Raises:
        MalformedDocument
    """
    if (opening.job, opening.manifest) != (request.digest, request.manifest):
        raise MalformedDocument("the opening is another job's")


def check_draw(draw: Draw, request: CrowdJobRequest, *, nonce: str) -> None:
    """Refuse a draw that cannot be an answer to this nonce; its signature is the caller's.

    Which instance it should be shows only when the job is closed.

    Raises:
        RefusedDraw: the detail says why.
    """
    task = request.task
    if (draw.job, draw.manifest, draw.nonce) != (request.digest, request.manifest, nonce):
        raise RefusedDraw("the draw answers another job or nonce")
    if draw.instance >= task.instances:
        raise RefusedDraw("there is no such instance")
    if len(draw.weights) != task.dimension:
        raise RefusedDraw("the draw does not have one number for each weight")
    if draw.revision == 0 and draw.weights != tuple(first_weights(task).tolist()):
        raise RefusedDraw("the instance did not begin with these weights")


def check_closing(
    closing: CrowdClosing,
    opening: CrowdOpening,
    request: CrowdJobRequest,
    consortium: Consortium,
    *,
    now: datetime,
) -> None:
    """Refuse a closing that does not follow from its job's opening and request.

    `consortium` is the one that `request` is bound to; `now`, when the closing was shown.

    Raises:
        MalformedDocument: it is another job's, or reveals another seed, or has other instances, or
            counts more contributions than the job takes, or is dated before its opening or later
            than it was shown, or does not say rightly whether the job was closed early.
    """
    if (closing.job, closing.manifest) != (opening.job, opening.manifest):
        raise MalformedDocument("the closing is another job's")
    if commitment(bytes.fromhex(closing.seed)) != opening.commitment:
        raise MalformedDocument("the closing reveals another seed than the opening commits to")
    start = tuple(first_weights(request.task).tolist())
    if len(closing.heads) != request.task.instances:
        raise MalformedDocument("the closing has another number of instances than the job")
    if closing.contributions > request.contributions:
        raise MalformedDocument("the closing counts more contributions than the job takes")
    for head in closing.heads:
        if len(head.weights) != len(start):
            raise MalformedDocument("an instance ended with another number of weights")
        if (head.revision == 0) != (head.digest == GENESIS):
            raise MalformedDocument("an instance that was replaced, and no other, has an entry")
        if head.revision == 0 and head.weights != start:
            raise MalformedDocument("an instance that was never replaced has changed")
    if closing.closed_at < opening.opened_at:
        raise MalformedDocument("the closing is dated before the opening")
    if closing.closed_at > now + CLOCKS_APART:
        raise MalformedDocument("the closing is dated later than it was shown")
    _check_end(closing, request, consortium)


def _check_end(closing: CrowdClosing, request: CrowdJobRequest, consortium: Consortium) -> None:
    is_full = closing.contributions >= request.contributions
    is_due = is_full or closing.closed_at >= request.closes_at
    if closing.closing_request is not None:
        if is_due:
            raise MalformedDocument("the job ended in due course, and its closing says otherwise")
        try:
            check_ending(closing.closing_request, request, consortium)
        except ProtocolError as error:
            raise MalformedDocument(f"the analyst did not close the job early: {error}") from None
    elif not is_due:
        raise MalformedDocument("the trainer closed the job early, and its analyst did not ask")


def broken_draws(draws: Iterable[Signed[Draw]], closing: CrowdClosing) -> Iterator[str]:
    """Return which of a client's draws an honest trainer cannot have made."""
    seed, instances = bytes.fromhex(closing.seed), len(closing.heads)
    seen: dict[tuple[int, int], tuple[int, ...]] = {}
    for signed in draws:
        draw = signed.body
        if draw.instance != drawn_instance(seed, draw.nonce, instances):
            yield f"draw {draw.nonce}: the seed gives another instance than the trainer served"
            continue
        if draw.revision > closing.heads[draw.instance].revision:
            yield f"draw {draw.nonce}: instance {draw.instance} never had revision {draw.revision}"
        shown = seen.setdefault((draw.instance, draw.revision), draw.weights)
        if shown != draw.weights:
            yield f"draw {draw.nonce}: the same revision was served with other weights"


def broken_receipts(
    receipts: Iterable[Signed[SubmissionReceipt]], closing: CrowdClosing
) -> Iterator[str]:
    """Return which of a client's receipts an honest trainer cannot have given."""
    seed, instances = bytes.fromhex(closing.seed), len(closing.heads)
    seen: dict[tuple[int, int], LogEntry] = {}
    for signed in receipts:
        entry = signed.body.entry
        if entry.instance != replaced_instance(seed, entry.nonce, instances):
            yield f"submission {entry.nonce}: the seed says that another instance was replaced"
            continue
        head = closing.heads[entry.instance]
        if entry.revision > head.revision:
            yield f"submission {entry.nonce}: it was acknowledged and is not in the end"
        if entry.revision == head.revision and entry.digest != head.digest:
            yield f"submission {entry.nonce}: another one took its place"
        if seen.setdefault((entry.instance, entry.revision), entry) != entry:
            yield f"submission {entry.nonce}: two were acknowledged in the same place"


class InstanceChain:
    """Follows the log of one instance from its beginning to the head that the closing names."""

    def __init__(self, closing: CrowdClosing, task: CrowdTask, instance: int) -> None:
        """Begin with the weights with which every instance of the task begins."""
        self._closing, self._instance = closing, instance
        self._seed = bytes.fromhex(closing.seed)
        self.revision = 0
        self.digest = GENESIS
        self.weights = [weights_digest(first_weights(task).tolist())]
        """Digest of the weights of every revision so far."""

    def follow(self, entries: Sequence[LogEntry]) -> None:
        """Take the next entries.

        Raises:
            MalformedDocument: one does not follow, or by the seed belongs to another instance.
        """
        for entry in entries:
            where = f"instance {self._instance}, revision {self.revision + 1}"
            expected = (self._closing.job, self._instance, self.revision + 1, self.digest)
            if (entry.job, entry.instance, entry.revision, entry.previous) != expected:
                raise MalformedDocument(f"{where}: the entry does not follow from the one before")
            chosen = replaced_instance(self._seed, entry.nonce, len(self._closing.heads))
            if chosen != self._instance:
                raise MalformedDocument(f"{where}: the seed says that another one was replaced")
            self.revision, self.digest = entry.revision, entry.digest
            self.weights.append(entry.weights)

    def end(self) -> None:
        """Check that the closing names the same last state of the instance.

        Raises:
            MalformedDocument: the closing says something else.
        """
        head = self._closing.heads[self._instance]
        ended = (self.revision, self.digest, self.weights[-1])
        if ended != (head.revision, head.digest, weights_digest(head.weights)):
            raise MalformedDocument(f"instance {self._instance} did not end as the closing says")

    def has(self, draw: Draw) -> bool:
        """Tell whether the weights that were served are those that the instance had."""
        known = draw.revision <= self.revision
        return known and self.weights[draw.revision] == weights_digest(draw.weights)


def check_crowd_job(request: CrowdJobRequest, manifest: Manifest) -> None:
    """Refuse a crowd job that the consortium's policy does not allow.

    Raises:
        RefusedJob: the detail says what to change.
    """
    allowed = manifest.policy.maximum_local_epsilon
    if allowed is None:
        raise RefusedJob(
            "the consortium's manifest allows no crowd jobs: its policy has no "
            "maximum_local_epsilon"
        )
    if request.client_epsilon > allowed * (1.0 + 1e-12):
        raise RefusedJob(
            f"epsilon {request.client_epsilon:g} of all that one client may contribute exceeds "
            f"what the policy allows one crowd job: {allowed:g}"
        )


def reach_refusal(request: CrowdJobRequest, limits: TimeLimits, *, now: datetime) -> str | None:
    """Return why a crowd job reaches too far ahead of `now`, or None."""
    return limits.too_far("maximum_job_seconds", "closes_at", request.closes_at, now)
