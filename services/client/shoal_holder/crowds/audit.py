"""Checks a trainer of a crowd job by the draws and receipts it signed to us, and by its logs.

The closing reveals the seed. Then every draw and receipt that was kept here either follows from the
opening, the seed and the instances' chains, or shows that the trainer lied. `faults` is a generator
that yields the parts of logs that it needs; the caller fetches them.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from shoal_holder.crowds.crowd import Crowd
from shoal_protocol.crowds.documents import CrowdClosing, Draw, LogEntry, SubmissionReceipt
from shoal_protocol.crowds.draws import InstanceChain, broken_draws, broken_receipts
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import MalformedDocument

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
