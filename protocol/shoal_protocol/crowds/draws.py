"""Derives from the trainer's seed and a client's nonce which instance is drawn and which replaced.

The trainer is committed to its seed before any nonce is made, so it can steer neither choice; the
client does not know the seed, so neither can it. When the seed is revealed, everybody can check
the draws and receipts that they kept, and the whole chain of every instance.
"""

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from shoal_protocol.crowds.documents import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    LogEntry,
    SubmissionReceipt,
    weights_digest,
)
from shoal_protocol.crowds.errors import RefusedDraw
from shoal_protocol.crowds.updates import first_weights
from shoal_protocol.jobs.membership import check_ending
from shoal_protocol.privacy.ledger import GENESIS
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import domain, sha256
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError

CLOCKS_APART: Final = timedelta(minutes=5)
"""How far two honest parties' clocks may differ; as usual for signed times (RFC 4120)."""


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
        MalformedDocument: it is another job's, or its instances do not have the task's shape.
    """
    task = request.task
    if (opening.job, opening.manifest) != (request.digest, request.manifest):
        raise MalformedDocument("the opening is another job's")
    if {len(each) for each in opening.instances} != {task.dimension}:
        raise MalformedDocument(f"every instance must have {task.dimension} weights")
    if len(opening.instances) != task.instances:
        raise MalformedDocument(f"the opening must have {task.instances} instances")


def check_beginning(opening: CrowdOpening, request: CrowdJobRequest) -> None:
    """Refuse an opening, of the right shape, whose first weights are not the request's.

    Raises:
        MalformedDocument: an instance has other weights, or the lattice has none such.
    """
    try:
        beginning = tuple(first_weights(request.task).tolist())
    except ValueError as error:
        raise MalformedDocument(str(error)) from None
    if any(weights != beginning for weights in opening.instances):
        raise MalformedDocument("an instance does not begin with the weights that were asked for")


def check_draw(draw: Draw, opening: CrowdOpening, *, nonce: str) -> None:
    """Refuse a draw that cannot be an answer to this nonce; its signature is the caller's.

    Which instance it should be shows only when the job is closed.

    Raises:
        RefusedDraw: the detail says why.
    """
    if (draw.job, draw.manifest, draw.nonce) != (opening.job, opening.manifest, nonce):
        raise RefusedDraw("the draw answers another job or nonce")
    if draw.instance >= len(opening.instances):
        raise RefusedDraw("there is no such instance")
    start = opening.instances[draw.instance]
    if len(draw.weights) != len(start):
        raise RefusedDraw("the draw does not have one number for each weight")
    if draw.revision == 0 and draw.weights != start:
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
    if len(closing.heads) != len(opening.instances):
        raise MalformedDocument("the closing has another number of instances than the opening")
    if closing.contributions > request.contributions:
        raise MalformedDocument("the closing counts more contributions than the job takes")
    for head, start in zip(closing.heads, opening.instances, strict=True):
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

    def __init__(self, closing: CrowdClosing, opening: CrowdOpening, instance: int) -> None:
        """Begin with the instance as the opening has it."""
        self._closing, self._instance = closing, instance
        self._seed = bytes.fromhex(closing.seed)
        self.revision = 0
        self.digest = GENESIS
        self.weights = [weights_digest(opening.instances[instance])]
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
