"""Validates submissions in threads, stores them in batches, acknowledges them once durable."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter, Histogram

from shoal_hosting.server.replies import documents_in
from shoal_hosting.storage.group_commit import Batches
from shoal_protocol.crowds.documents import Submission, SubmissionReceipt, weights_digest
from shoal_protocol.crowds.draws import replaced_instance
from shoal_protocol.crowds.errors import RefusedSubmission
from shoal_protocol.crowds.sanity import check_submission
from shoal_protocol.wire.documents import Role, Signed
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_trainer.crowds.book import CrowdBook
from shoal_trainer.crowds.replacing import Outcome, Replaced, Replacement, replace_all
from shoal_trainer.crowds.store import CrowdRecord, pack
from shoal_trainer.resources import Resources

MOST_IN_BULK: Final = 1_000
_VALIDATING_THREADS: Final = 2
_VALIDATED_AT_ONCE: Final = 64
_LARGEST_COMMIT: Final = 1_000
_COMMITS_AT_ONCE: Final = 2  # one is on its way to the disk while the one before it is marked
_BATCH_SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A signed receipt in its wire form; `is_new` if the submission was not on file before."""

    receipt: bytes
    is_new: bool


Answer = Acknowledged | ProtocolError


@dataclass(frozen=True, slots=True)
class _Offered:
    crowd: CrowdRecord
    submission: bytes


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
        self._batch_size = Histogram(
            "shoal_trainer_crowd_commit_batch_submissions",
            "Submissions in one transaction",
            buckets=_BATCH_SIZES,
            registry=resources.registry,
        )

    async def take(self, job: str, encoded: bytes) -> Answer | list[Answer]:
        """Take one signed submission, or `{"documents": [...]}`, each of which is judged by itself.

        Raises:
            UnknownJob
            MalformedDocument: the body as a whole cannot be read; nothing was stored.
            StorageUnavailable: nothing was stored.
        """
        crowd = await self._book.find(job)
        documents = await asyncio.to_thread(documents_in, encoded, Role.CLIENT, most=MOST_IN_BULK)
        if documents is None:
            return await self._take(_Offered(crowd, encoded))
        answers = await asyncio.gather(*(self._take(_Offered(crowd, each)) for each in documents))
        if answers and all(isinstance(each, StorageUnavailable) for each in answers):
            raise StorageUnavailable  # so that the sender is told when to come back
        return answers

    async def _take(self, offered: _Offered) -> Answer:
        judged = await self._validation.submit(offered)
        if isinstance(judged, ProtocolError):
            return judged
        try:
            return await self._commits.submit(judged)
        except StorageUnavailable as error:  # to one of many, this is an answer like any other
            return error

    async def _validate(self, batch: list[_Offered]) -> list[Replacement | ProtocolError]:
        return await asyncio.to_thread(lambda: [self._validated(offered) for offered in batch])

    def _validated(self, offered: _Offered) -> Replacement | ProtocolError:
        try:
            signed = self._resources.book.decode(offered.submission, Submission)
            return self._checked(offered.crowd, signed)
        except ProtocolError as error:
            return error

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

    async def _commit(self, batch: list[Replacement]) -> list[Answer]:
        own = self._resources
        outcomes = await own.storage.run(replace_all, batch, now=own.clock())
        new = sum(isinstance(each, Replaced) and each.is_new for each in outcomes)
        self._replaced.inc(new)
        self._batch_size.observe(len(batch))
        if any(isinstance(each, Replaced) and each.is_last for each in outcomes):
            own.wake.set()  # the job is full: it can be closed
        return await asyncio.to_thread(self._acknowledge, batch, outcomes)

    def _acknowledge(
        self, batch: Sequence[Replacement], outcomes: Sequence[Outcome]
    ) -> list[Answer]:
        return [
            self._receipt(each.crowd, outcome) if isinstance(outcome, Replaced) else outcome
            for each, outcome in zip(batch, outcomes, strict=True)
        ]

    def _receipt(self, crowd: CrowdRecord, replaced: Replaced) -> Acknowledged:
        own = self._resources
        receipt = SubmissionReceipt(manifest=crowd.request.body.manifest, entry=replaced.entry)
        signed = own.sign(receipt)  # Ed25519: the same bytes every time
        return Acknowledged(signed.encode(), replaced.is_new)
