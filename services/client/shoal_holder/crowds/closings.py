"""Compares the draws and receipts kept of a crowd job with the trainer's closing and its logs.

The closing reveals the seed. Then every draw and receipt that was kept here either follows from the
opening, the seed and the instances' chains, or shows that the trainer lied. `faults` is a generator
that yields the parts of logs that it needs; the caller fetches them.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pydantic

from shoal_holder.crowds import memory
from shoal_holder.crowds.crowd import Crowd
from shoal_holder.crowds.memory import Evidence
from shoal_holder.crowds.status import WRONG_RECEIPT, in_words, is_cheating
from shoal_holder.reporting import Report
from shoal_holder.site import Site
from shoal_holder.state import State
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    Draw,
    InstanceChain,
    LogEntry,
    SubmissionReceipt,
    broken_draws,
    broken_receipts,
    check_closing,
)
from shoal_protocol.wire.documents import Signed, decode, describe
from shoal_protocol.wire.errors import MalformedDocument, UnknownJob

MOST_REVISIONS: Final = 200_000
"""Longest log of an instance that a data holder fetches to check its own contributions."""


class Wanted(NamedTuple):
    """The part of an instance's log that follows a revision."""

    instance: int
    after: int


@dataclass(frozen=True)
class Kept:
    """The draw and receipt that were kept of one contribution."""

    contribution: str
    draw: Signed[Draw]
    receipt: Signed[SubmissionReceipt] | None


def faults(
    crowd: Crowd, closing: CrowdClosing, kept: Sequence[Kept]
) -> Generator[Wanted, Sequence[LogEntry], dict[str, list[str]]]:
    """Return the trainer's faults by contribution; empty if there are none.

    It asks for logs of the instances that were drawn or replaced, up to `MOST_REVISIONS` long. A
    log that is no chain from the opening to the closing is a fault of every contribution that it
    concerns. Longer logs are not read, only seed and closing are checked: see `too_long`.
    """
    found = {each.contribution: list(_without_logs(each, closing)) for each in kept}
    for instance, head in enumerate(closing.heads):
        draws = [each for each in kept if each.draw.body.instance == instance]
        receipts = [each for each in kept if _entry(each, instance) is not None]
        if not (draws or receipts) or head.revision > MOST_REVISIONS:
            continue
        watched = {each.contribution: _entry(each, instance) for each in receipts}
        try:
            chain, seen = yield from followed(crowd, closing, instance, watched.values())
        except MalformedDocument as error:
            for each in {*(d.contribution for d in draws), *watched}:
                found[each].append(str(error))
            continue
        for drawn in draws:
            if not chain.has(drawn.draw.body):
                found[drawn.contribution].append(
                    f"draw {drawn.draw.body.nonce}: the instance never had these weights"
                )
        for contribution, entry in watched.items():
            if entry not in seen:
                found[contribution].append("what was acknowledged is not in the instance's log")
    return {contribution: said for contribution, said in found.items() if said}


def too_long(closing: CrowdClosing, kept: Sequence[Kept]) -> list[str]:
    """Return the contributions that concern an instance whose log `faults` does not ask for."""
    long = {i for i, head in enumerate(closing.heads) if head.revision > MOST_REVISIONS}
    return [
        each.contribution
        for each in kept
        if each.draw.body.instance in long or any(_entry(each, i) is not None for i in long)
    ]


def followed(
    crowd: Crowd, closing: CrowdClosing, instance: int, watched: Iterable[LogEntry | None]
) -> Generator[Wanted, Sequence[LogEntry], tuple[InstanceChain, list[LogEntry]]]:
    """Follow an instance's whole log; return the chain, and those of `watched` that are in it.

    Raises:
        MalformedDocument: it is no unbroken chain from the opening to the closing.
    """
    chain = InstanceChain(closing, crowd.opening, instance)
    wanted = {each.digest: each for each in watched if each is not None}
    seen = []
    while chain.revision < closing.heads[instance].revision:
        entries = yield Wanted(instance, chain.revision)
        if not entries:
            raise MalformedDocument(f"the log of instance {instance} ends too early")
        chain.follow(entries)
        seen += [entry for entry in entries if entry.digest in wanted]
    chain.end()
    return chain, seen


def _without_logs(kept: Kept, closing: CrowdClosing) -> Iterable[str]:
    yield from broken_draws([kept.draw], closing)
    if kept.receipt is not None:
        yield from broken_receipts([kept.receipt], closing)


def _entry(kept: Kept, instance: int) -> LogEntry | None:
    if kept.receipt is None or kept.receipt.body.entry.instance != instance:
        return None
    return kept.receipt.body.entry


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
