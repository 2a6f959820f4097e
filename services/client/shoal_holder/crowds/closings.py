"""Compares the draws and receipts kept of a crowd job with the trainer's closing and its logs.

The closing reveals the seed. Then every draw and receipt that was kept here either follows from the
opening, the seed and the instances' chains, or shows that the trainer lied. `faults` is a generator
that yields the parts of logs that it needs; the caller fetches them.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from shoal_holder.crowds import memory
from shoal_holder.crowds.crowd import Crowd, LogPage, checked_closing
from shoal_holder.crowds.memory import Evidence
from shoal_holder.crowds.status import WRONG_RECEIPT, in_words, is_cheating
from shoal_holder.messages import OnePart
from shoal_holder.site import Part
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    InstanceChain,
    LogEntry,
    broken_draws,
    broken_receipts,
    check_closing,
)
from shoal_protocol.wire.documents import Model, decode
from shoal_protocol.wire.encoding import Count, Digest
from shoal_protocol.wire.errors import MalformedDocument, UnknownJob


class WantedLog(Model):
    """The part of an instance's log that is needed to judge a closing; None: it is judged."""

    instance: Count | None
    after: Count = 0


MOST_REVISIONS: Final = 200_000
"""Longest log of an instance that a data holder fetches to check its own contributions."""


Asking = Generator[WantedLog, Sequence[LogEntry], tuple[dict[str, list[str]], set[str]]]
"""Asks for parts of logs; returns the trainer's faults by contribution, and which are unread."""

Judgement = Generator[WantedLog, Sequence[LogEntry], None]


def faults(crowd: Crowd, closing: CrowdClosing, kept: Sequence[Evidence]) -> Asking:
    """Return the trainer's faults by contribution, none if there are none, and which are unread.

    It asks for logs of the instances that were drawn or replaced, up to `MOST_REVISIONS` long. A
    log that is no chain from the opening to the closing is a fault of every contribution that it
    concerns. Longer logs are not read: of the contributions that these concern, the second part of
    what is returned, only seed and closing are checked.
    """
    found = {each.contribution: list(_without_logs(each, closing)) for each in kept}
    unread = set[str]()
    for instance, head in enumerate(closing.heads):
        draws = {
            each.contribution: each.draw.body
            for each in kept
            if each.draw.body.instance == instance
        }
        taken = {
            each.contribution: entry.digest
            for each in kept
            if (entry := _entry(each, instance)) is not None
        }
        concerned = draws.keys() | taken.keys()
        if head.revision > MOST_REVISIONS:
            unread |= concerned
            continue
        if not concerned:
            continue
        chain, seen = InstanceChain(closing, crowd.request.task, instance), set[str]()
        try:
            while chain.revision < head.revision:
                entries = yield WantedLog(instance=instance, after=chain.revision)
                if not entries:
                    raise MalformedDocument(f"the log of instance {instance} ends too early")
                chain.follow(entries)
                seen |= {entry.digest for entry in entries}.intersection(taken.values())
            chain.end()
        except MalformedDocument as error:
            for contribution in concerned:
                found[contribution].append(str(error))
            continue
        for contribution, draw in draws.items():
            if not chain.has(draw):
                found[contribution].append(
                    f"draw {draw.nonce}: the instance never had these weights"
                )
        for contribution, digest in taken.items():
            if digest not in seen:
                found[contribution].append("what was acknowledged is not in the instance's log")
    return {contribution: said for contribution, said in found.items() if said}, unread


def _without_logs(kept: Evidence, closing: CrowdClosing) -> Iterable[str]:
    yield from broken_draws([kept.draw], closing)
    if kept.receipt is not None:
        yield from broken_receipts([kept.receipt], closing)
    if kept.outcome == WRONG_RECEIPT:
        yield "the receipt is not the submission's"


def _entry(kept: Evidence, instance: int) -> LogEntry | None:
    if kept.receipt is None or kept.receipt.body.entry.instance != instance:
        return None
    return kept.receipt.body.entry


@dataclass(eq=False)
class Closings(Part):
    """The trainer's closings, and how far each was compared."""

    _on_file: Callable[[str], Crowd]
    _under_way: dict[str, Judgement] = field(default_factory=dict)

    def show(self, job: Digest, parts: OnePart) -> None:
        """Keep a closing, as the trainer signed it; only the first that is shown is judged.

        Raises:
            UnknownJob: there is no such job here.
            ProtocolError: it is another job's, or not signed by the trainer under its manifest.
        """
        closing = checked_closing(self._on_file(job), parts[0]).encode()
        keep = "UPDATE crowds SET closing = ? WHERE job = ? AND closing IS NULL"
        self._state.file.write(keep, closing, job)

    def judge(self, job: Digest) -> WantedLog:
        """Begin to compare the evidence kept of a job with the closing that was shown.

        Return the part of a log that is needed next; no instance once it is judged.

        Raises:
            UnknownJob: there is no such job here, or no closing of it was shown.
        """
        crowd, shown = self._on_file(job), memory.shown_closing(self._state, job)
        if shown is None:
            raise UnknownJob("no closing of the job was shown")
        self._under_way[job] = self._judgement(crowd, decode(shown, CrowdClosing).body)
        return self._on(job, None)

    def show_log(self, job: Digest, parts: OnePart) -> WantedLog:
        """Continue with the part of a log that was needed; return as `judge`.

        Raises:
            UnknownJob: no closing of this job is being validated.
            MalformedDocument: the bytes are no part of a log.
        """
        return self._on(job, LogPage.read(parts[0]).entries)

    def _on(self, job: str, entries: Any) -> WantedLog:
        if job not in self._under_way:
            raise UnknownJob
        try:
            return self._under_way[job].send(entries)
        except StopIteration:
            del self._under_way[job]
            return WantedLog(instance=None)

    def _judgement(self, crowd: Crowd, closing: CrowdClosing) -> Judgement:
        kept = memory.evidence(self._state, crowd.job)
        try:
            now = self._site.clock()
            check_closing(closing, crowd.opening, crowd.request, crowd.consortium, now=now)
            found, unread = yield from faults(crowd, closing, kept)
        except MalformedDocument as error:
            found, unread = {each.contribution: [str(error)] for each in kept}, set()
        early = closing.closing_request is not None
        verdict = in_words(found, unread=bool(unread), early=early)
        memory.conclude(self._state, crowd.job, verdict=verdict, kept={*found, *unread})
        event = "trainer cheated" if is_cheating(verdict) else "closing checked"
        self._report(event, job=crowd.job, verdict=verdict)
