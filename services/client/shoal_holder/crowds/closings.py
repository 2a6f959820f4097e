"""Compares the draws and receipts kept of a crowd job with the trainer's closing."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

import pydantic

from shoal_holder.crowds import memory
from shoal_holder.crowds.audit import Kept, Wanted, faults, too_long
from shoal_holder.crowds.crowd import Crowd
from shoal_holder.crowds.memory import Evidence
from shoal_holder.crowds.verdicts import WRONG_RECEIPT, in_words, is_cheating
from shoal_holder.reporting import Report
from shoal_holder.site import Site
from shoal_holder.state import State
from shoal_protocol.crowds.documents import CrowdClosing, Draw, LogEntry, SubmissionReceipt
from shoal_protocol.crowds.draws import check_closing
from shoal_protocol.wire.documents import Signed, decode, describe
from shoal_protocol.wire.errors import MalformedDocument, UnknownJob

_ENTRIES = pydantic.TypeAdapter(list[LogEntry])


class Closings:
    """The trainer's closings, and how far each was compared."""

    def __init__(self, site: Site, state: State, report: Report) -> None:
        self._site = site
        self._state = state
        self._report = report
        self._under_way: dict[str, Generator[Wanted, Sequence[LogEntry], None]] = {}

    def show(self, crowd: Crowd, document: bytes) -> None:
        """Keep a closing, unless another was shown first: only the first is judged.

        Raises:
            ProtocolError: it is another job's, or not signed by the trainer under its manifest.
        """
        signed = decode(document, CrowdClosing)
        crowd.consortium.verify(signed)
        if signed.body.job != crowd.job:  # closings of other jobs are public
            raise MalformedDocument("the closing is another job's")
        memory.keep_closing(self._state, crowd.job, signed.encode())

    def look_at_once(self, crowd: Crowd) -> None:
        """Convict the trainer if the closing of a job that ended here is wrong by itself.

        Checks that need logs come later, so that data holders do not all ask at once.
        """
        kept = memory.shown_closing(self._state, crowd.job)
        if kept is None:
            return
        closing, stored = decode(kept, CrowdClosing), memory.evidence(self._state, crowd.job)
        if found := self._wrong_by_itself(crowd, closing.body, stored):
            self._conclude(crowd.job, closing, found, unread=())

    def judge(self, crowd: Crowd) -> Wanted | None:
        """Begin to compare; return the part of a log that is needed next, None once judged.

        Raises:
            UnknownJob: no closing of it was shown.
        """
        self._under_way[crowd.job] = self._validation(crowd)
        return self._on(crowd.job, None)

    def show_log(self, job: str, entries: bytes) -> Wanted | None:
        """Continue with the part of a log that was needed; return as `judge`.

        Raises:
            UnknownJob: no closing of this job is being validated.
            MalformedDocument: the bytes are no entries of a log.
        """
        try:
            found = _ENTRIES.validate_json(entries)
        except pydantic.ValidationError as error:
            raise MalformedDocument(describe(error, LogEntry)) from None
        return self._on(job, found)

    def _on(self, job: str, entries: Any) -> Wanted | None:
        if job not in self._under_way:
            raise UnknownJob
        try:
            return self._under_way[job].send(entries)
        except StopIteration:
            del self._under_way[job]
            return None

    def _validation(self, crowd: Crowd) -> Generator[Wanted, Sequence[LogEntry], None]:
        document = memory.shown_closing(self._state, crowd.job)
        if document is None:
            raise UnknownJob("no closing of the job was shown")
        closing, stored = decode(document, CrowdClosing), memory.evidence(self._state, crowd.job)
        kept = [_kept(each) for each in stored]
        found = self._wrong_by_itself(crowd, closing.body, stored)
        if not found:
            found = yield from faults(crowd, closing.body, kept)
            for each in stored:
                if each.outcome == WRONG_RECEIPT:
                    said = "the receipt is not the submission's"
                    found.setdefault(each.contribution, []).append(said)
        self._conclude(crowd.job, closing, found, too_long(closing.body, kept))

    def _conclude(
        self,
        job: str,
        closing: Signed[CrowdClosing],
        found: Mapping[str, Sequence[str]],
        unread: Iterable[str],
    ) -> None:
        unread = set(unread)
        early = closing.body.closing_request is not None
        verdict = in_words(found, unread=bool(unread), early=early)
        memory.conclude(
            self._state,
            job,
            closing=closing.encode(),
            verdict=verdict,
            kept={*found, *unread},
        )
        event = "trainer cheated" if is_cheating(verdict) else "closing checked"
        self._report(event, job=job, verdict=verdict)

    def _wrong_by_itself(
        self, crowd: Crowd, closing: CrowdClosing, stored: Sequence[Evidence]
    ) -> dict[str, list[str]]:
        try:
            now = self._site.clock()
            check_closing(closing, crowd.opening, crowd.request, crowd.consortium, now=now)
        except MalformedDocument as error:
            return {each.contribution: [str(error)] for each in stored}
        return {}


def _kept(stored: Evidence) -> Kept:
    receipt = None if stored.receipt is None else decode(stored.receipt, SubmissionReceipt)
    return Kept(stored.contribution, decode(stored.draw, Draw), receipt)
