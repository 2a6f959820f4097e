"""Compares the draws and receipts kept of a crowd job with the trainer's closing and its logs.

The closing reveals the seed. Then every draw and receipt that was kept here either follows from the
opening, the seed and the instances' chains, or shows that the trainer lied. `faults` is a generator
that yields the parts of logs that it needs, and is sent them.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from shoal_holder.crowds import memory
from shoal_holder.crowds.crowd import Crowd, LogPage, checked_closing
from shoal_holder.crowds.memory import Evidence
from shoal_holder.crowds.status import WRONG_RECEIPT, in_words, is_cheating
from shoal_holder.letters import Draft, Settled
from shoal_holder.site import Part
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    InstanceChain,
    LogEntry,
    broken_draws,
    broken_receipts,
    check_closing,
)
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError, UnknownJob


class WantedLog(NamedTuple):
    """A part of an instance's log: what follows a revision."""

    instance: int
    after: int


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


@dataclass
class _Judging:
    """A closing that is being compared; `wanted` is the part of a log that is needed next."""

    work: Judgement
    wanted: WantedLog | None = None
    parts: int = 0


@dataclass(eq=False)
class Closings(Part):
    """The trainer's closings; each is judged once its job has ended here."""

    _on_file: Callable[[str], Crowd]
    _under_way: dict[str, _Judging] = field(default_factory=dict)

    def letters(self, trainer: str) -> Iterator[Draft]:
        """Yield what is to be asked of the trainer: closings, and the parts of logs they need."""
        for job, is_ended, is_shown in memory.unjudged(self._state):
            path = f"/v1/crowds/{job}"
            if not is_shown:
                yield Draft(f"closing/{job}", trainer, f"{path}/closing")
            elif is_ended:
                if job not in self._under_way:
                    self._go_on(job)
                judging = self._under_way[job]
                if judging.wanted is not None:
                    log = "{}/log/{}?after={}".format(path, *judging.wanted)
                    yield Draft(f"log/{job}/{judging.parts}", trainer, log)

    def hear(self, settled: Settled) -> None:
        """Keep a closing, as the trainer signed it; only the first that is shown is judged.

        Raises:
            UnknownJob: there is no such job here.
            ProtocolError: it is another job's, or not signed by the trainer under its manifest.
        """
        closing = checked_closing(self._on_file(settled.about), settled.body).encode()
        keep = "UPDATE jobs SET closing = ? WHERE job = ? AND closing IS NULL"
        self._state.file.write(keep, closing, settled.about)

    def hear_log(self, settled: Settled) -> None:
        """Continue with the part of a log that was needed.

        Raises:
            UnknownJob: no such part was asked for.
            MalformedDocument: the bytes are no part of a log.
        """
        judging = self._under_way.get(settled.about)
        if judging is None or judging.wanted is None or judging.parts != settled.number:
            raise UnknownJob("no such part of a log was asked for")
        self._go_on(settled.about, LogPage.read(settled.body).entries)

    def _go_on(self, job: str, entries: Any = None) -> None:
        judging = self._under_way.setdefault(job, _Judging(self._judgement(job)))
        judging.wanted, judging.parts = None, judging.parts + 1
        try:
            with suppress(StopIteration):  # it was judged
                judging.wanted = judging.work.send(entries)
        except ProtocolError as error:
            self._report("closing not judged", job=job, reason=str(error))

    def _judgement(self, job: str) -> Judgement:
        crowd, kept = self._on_file(job), memory.evidence(self._state, job)
        closing = decode(crowd.closing or b"", CrowdClosing).body
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
