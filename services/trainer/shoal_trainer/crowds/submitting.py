"""Validates submissions in threads, stores them in batches, acknowledges them once durable.

The transaction stores a batch in order, each submission in place of an instance. It locks each
job's row from first read to commit. So whatever replicas do at once, a draw is answered once, a
client's count is right, no chain forks, and every acknowledged submission is in the closing.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from prometheus_client import Counter
from sqlalchemy import Connection, bindparam, select

from shoal_protocol.crowds.draws import (
    CrowdClosed,
    CrowdJobRequest,
    LogEntry,
    Submission,
    SubmissionReceipt,
    replaced_instance,
    weights_digest,
)
from shoal_protocol.crowds.submissions import (
    ContributionsUsedUp,
    RefusedSubmission,
    SessionExpired,
    check_submission,
)
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.phases import CrowdPhase
from shoal_protocol.wire.service_errors import ConflictingDocument
from shoal_service.signed_documents import read_signed
from shoal_service.storage.database import insert_ignoring
from shoal_service.storage.group_commit import Batches
from shoal_trainer.crowds.store import CrowdBook, CrowdRecord, log_entry, pack
from shoal_trainer.resources import Resources
from shoal_trainer.schema import crowds


@dataclass(frozen=True, slots=True)
class Replacement:
    """A submission that passed every check, and the instance that the seed says it replaces."""

    crowd: CrowdRecord
    client: int
    nonce: bytes
    instance: int
    weights: bytes  # packed
    weights_digest: bytes
    submission: bytes  # its digest
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Replaced:
    """A replacement on file; `is_new` if it was not before."""

    entry: LogEntry
    is_new: bool


Outcome = Replaced | ProtocolError


def replace_all(db: Connection, batch: Sequence[Replacement], *, now: datetime) -> list[Outcome]:
    """Store the replacements that their jobs still take; return each one's outcome, in order.

    A submission that is on file already is acknowledged, even after its job's time.
    """
    by_job: dict[int, list[int]] = defaultdict(list)
    for position, each in enumerate(batch):
        by_job[each.crowd.number].append(position)
    outcomes: dict[int, Outcome] = {}
    jobs = crowds.jobs.c
    query = select(jobs.number, jobs.phase, jobs.contributions, jobs.contributors)
    # all replicas lock in the same order; rows that refer to the job may still be added
    locked = query.where(jobs.number.in_(by_job)).order_by(jobs.number)
    for number, phase, *totals in db.execute(locked.with_for_update(key_share=True)).all():
        positions = by_job[number]
        offered = [batch[position] for position in positions]
        job = _Job(db, offered, *totals, is_open=CrowdPhase(phase) is CrowdPhase.OPEN)
        results = [job.take(each, now) for each in offered]
        job.store()
        outcomes.update(zip(positions, results, strict=True))
    return [outcomes[position] for position in range(len(batch))]


class _Job:
    """One job's part of a batch: its state on file, and the rows to add."""

    def __init__(
        self,
        db: Connection,
        offered: Sequence[Replacement],
        contributions: int,
        contributors: int,
        *,
        is_open: bool,
    ) -> None:
        self._db = db
        crowd = offered[0].crowd
        self._number, self._id = crowd.number, crowd.request.digest
        self._request: CrowdJobRequest = crowd.request.body
        self._is_open = is_open
        self._contributions, self._contributors = contributions, contributors
        log, counts, heads = crowds.log.c, crowds.contributors.c, crowds.instances.c
        answered = select(
            *(log.submission, log.instance, log.revision, log.previous, log.nonce, log.weights)
        ).where(log.job == self._number, log.nonce.in_([each.nonce for each in offered]))
        self._known = {
            row.nonce: (row.submission, log_entry(self._id, *row[1:]))
            for row in db.execute(answered)
        }
        clients = {each.client for each in offered}
        counted = select(counts.client, counts.contributions).where(
            counts.job == self._number, counts.client.in_(clients)
        )
        self._counts = {client: count for client, count in db.execute(counted)}
        instances = {each.instance for each in offered}
        current = select(heads.instance, heads.revision, heads.digest).where(
            heads.job == self._number, heads.instance.in_(instances)
        )
        self._heads = {row.instance: (row.revision, row.digest) for row in db.execute(current)}
        self._entries: list[dict[str, object]] = []
        self._weights: dict[int, bytes] = {}
        self._clients: set[int] = set()

    def take(self, offered: Replacement, now: datetime) -> Outcome:
        """Add one replacement, or return why it is refused."""
        if offered.nonce in self._known:
            submission, entry = self._known[offered.nonce]
            same = submission == offered.submission
            return Replaced(entry, is_new=False) if same else ConflictingDocument()
        request = self._request
        is_full = self._contributions >= request.contributions
        if not self._is_open or is_full or now >= request.closes_at:
            return CrowdClosed()
        if now >= offered.expires_at:
            return SessionExpired()
        count = self._counts.get(offered.client, 0)
        if count >= request.contributions_per_client:
            return ContributionsUsedUp()
        return Replaced(self._add(offered, count), is_new=True)

    def _add(self, offered: Replacement, count: int) -> LogEntry:
        revision, previous = self._heads[offered.instance]
        entry = log_entry(
            *(self._id, offered.instance, revision + 1),
            *(previous, offered.nonce, offered.weights_digest),
        )
        self._entries.append(
            {
                "job": self._number,
                "instance": offered.instance,
                "revision": revision + 1,
                "previous": previous,
                "nonce": offered.nonce,
                "weights": offered.weights_digest,
                "submission": offered.submission,
            }
        )
        self._heads[offered.instance] = (revision + 1, bytes.fromhex(entry.digest))
        self._weights[offered.instance] = offered.weights
        self._counts[offered.client] = count + 1
        self._clients.add(offered.client)
        self._known[offered.nonce] = (offered.submission, entry)
        self._contributions += 1
        self._contributors += count == 0
        return entry

    def store(self) -> None:
        """Write what was taken."""
        if not self._entries:
            return
        db, instances = self._db, crowds.instances.c
        db.execute(crowds.log.insert(), self._entries)
        here = (instances.job == self._number) & (instances.instance == bindparam("at"))
        changed = [
            {
                "at": instance,
                "revision": self._heads[instance][0],
                "digest": self._heads[instance][1],
                "weights": weights,
            }
            for instance, weights in self._weights.items()
        ]
        db.execute(crowds.instances.update().where(here), changed)
        insert = insert_ignoring(db.dialect.name)(crowds.contributors)
        counted = insert.on_conflict_do_update(
            index_elements=["job", "client"], set_={"contributions": insert.excluded.contributions}
        )
        rows = [
            {"job": self._number, "client": client, "contributions": self._counts[client]}
            for client in self._clients
        ]
        db.execute(counted, rows)
        totals = {"contributions": self._contributions, "contributors": self._contributors}
        job = crowds.jobs.c.number == self._number
        db.execute(crowds.jobs.update().where(job).values(totals))


_VALIDATING_THREADS: Final = 2
_VALIDATED_AT_ONCE: Final = 64
_LARGEST_COMMIT: Final = 1_000
_COMMITS_AT_ONCE: Final = 2  # one is on its way to the disk while the one before it is marked


Receipt = tuple[bytes, bool]
"""A signed receipt in its wire form, and whether the submission was not on file before."""


class Submissions:
    """Validates and stores submissions; returns a signed receipt for each."""

    def __init__(self, resources: Resources, book: CrowdBook) -> None:
        """Begin without submissions."""
        self._resources = resources
        self._book = book
        self._validation = Batches(
            self._validate, largest=_VALIDATED_AT_ONCE, at_once=_VALIDATING_THREADS
        )
        self._commits = Batches(self._commit, largest=_LARGEST_COMMIT, at_once=_COMMITS_AT_ONCE)
        self._replaced = Counter(
            "shoal_trainer_crowd_contributions",
            "Submissions that replaced an instance",
            registry=resources.registry,
        )

    async def take(self, job: str, encoded: bytes) -> Receipt:
        """Take a signed submission.

        Raises:
            UnknownJob
            ProtocolError: as `_checked`, and as the job and its other submissions have it.
            StorageUnavailable: it was not stored.
        """
        judged = await self._validation.submit((await self._book.find(job), encoded))
        if isinstance(judged, ProtocolError):
            raise judged
        answer = await self._commits.submit(judged)
        if isinstance(answer, ProtocolError):
            raise answer
        return answer

    async def _validate(
        self, batch: list[tuple[CrowdRecord, bytes]]
    ) -> list[Replacement | ProtocolError]:
        return await asyncio.to_thread(lambda: [self._validated(*offered) for offered in batch])

    def _validated(self, crowd: CrowdRecord, encoded: bytes) -> Replacement | ProtocolError:
        try:
            return self._checked(crowd, read_signed(self._resources.book, encoded, Submission))
        except ProtocolError as error:
            return copy(error)  # without the traceback, which would keep the whole batch

    def _checked(self, crowd: CrowdRecord, signed: Signed[Submission]) -> Replacement:
        """Check all of a submission that does not depend on the store.

        Raises:
            WrongManifest
            UnknownHolder, RevokedHolder, WrongSigner, BadSignature: the client's or the draw's.
            RefusedSubmission: it answers another job's draw, or is no step from it.
        """
        request, book = crowd.request.body, self._resources.book
        submission, draw = signed.body, signed.body.draw.body
        consortium = book.get(request.manifest)
        consortium.verify_in_force(signed, book.current)
        consortium.verify(submission.draw)
        if draw.job != request.digest:
            raise RefusedSubmission("it answers a draw of another job")
        check_submission(request.task, draw, submission)
        return Replacement(
            crowd=crowd,
            client=submission.client,
            nonce=bytes.fromhex(draw.nonce),
            instance=replaced_instance(crowd.seed, draw.nonce, request.task.instances),
            weights=pack(submission.weights),
            weights_digest=bytes.fromhex(weights_digest(submission.weights)),
            submission=bytes.fromhex(signed.digest),
            expires_at=draw.expires_at,
        )

    async def _commit(self, batch: list[Replacement]) -> list[Receipt | ProtocolError]:
        own = self._resources
        outcomes = await own.storage.run(replace_all, batch, now=own.clock())
        new = sum(isinstance(each, Replaced) and each.is_new for each in outcomes)
        self._replaced.inc(new)
        return await asyncio.to_thread(
            lambda: [
                self._receipt(each.crowd, outcome) if isinstance(outcome, Replaced) else outcome
                for each, outcome in zip(batch, outcomes, strict=True)
            ]
        )

    def _receipt(self, crowd: CrowdRecord, replaced: Replaced) -> Receipt:
        receipt = SubmissionReceipt(manifest=crowd.request.body.manifest, entry=replaced.entry)
        # Ed25519: the same bytes every time
        return self._resources.sign(receipt).encode(), replaced.is_new
