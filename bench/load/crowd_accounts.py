"""What became of a crowd's contributions, by the closed job's own chains."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bench.load.crowds import CrowdFigures
from bench.load.lines import Line
from bench.load.metering import Meter
from shoal.jobs.analyst import CrowdJob
from shoal_holder.crowds.crowd import Crowd, LogPage
from shoal_protocol.crowds.draws import CrowdClosing, InstanceChain, check_closing, drawn_instance
from shoal_protocol.wire.errors import MalformedDocument

_CLOSES_WITHIN_SECONDS: Final = 20


@dataclass(frozen=True)
class CrowdAccount:
    """Links in all chains; acknowledged ones that are in none, or twice.

    `misdrawn` draws are of another instance than the seed says, `forged` ones have weights that the
    instance did not have. `fewest` and `most` are the replacements of an instance.
    """

    linked: int
    lost: int
    counted_twice: int
    misdrawn: int
    forged: int
    fewest: int
    most: int


async def closed_account(
    job: CrowdJob, figures: CrowdFigures, *, now: datetime
) -> CrowdAccount | None:
    """Ask the trainer for a job's closing and return `account_of` it; None if it did not fill."""
    closing = await asyncio.to_thread(job.closing, wait_seconds=_CLOSES_WITHIN_SECONDS)
    if closing is None:
        return None
    crowd = job.crowd
    meter = Meter(crowd.consortium, time.monotonic, connections=1)
    line = Line(crowd.consortium.manifest.trainer, meter)

    async def log(instance: int, after: int) -> bytes:
        return (await line.get(f"/v1/crowds/{crowd.job}/log/{instance}", after=after)).body

    try:
        return await account_of(log, crowd, closing.body, figures, now=now)
    finally:
        await meter.close()


async def account_of(
    log: Callable[[int, int], Awaitable[bytes]],
    crowd: Crowd,
    closing: CrowdClosing,
    figures: CrowdFigures,
    *,
    now: datetime,
) -> CrowdAccount:
    """Follow every chain and compare it with what the crowd's receipts and draws say `now`.

    Raises:
        MalformedDocument: the closing does not follow from the opening, or a chain is broken.
        Unavailable: the trainer does not show a log.
    """
    check_closing(closing, crowd.opening, crowd.request, crowd.consortium, now=now)
    linked: Counter[str] = Counter()
    served: list[list[str]] = []  # digests of the weights of every revision of every instance
    for instance, head in enumerate(closing.heads):
        chain = InstanceChain(closing, crowd.request.task, instance)
        while chain.revision < head.revision:
            page = LogPage.read(await log(instance, chain.revision))
            if not page.entries:
                raise MalformedDocument(f"the log of instance {instance} ends too early")
            chain.follow(page.entries)
            linked.update(entry.digest for entry in page.entries)
        chain.end()
        served.append(chain.weights)
    seed, instances = bytes.fromhex(closing.seed), len(closing.heads)
    revisions = [head.revision for head in closing.heads]
    return CrowdAccount(
        linked=linked.total(),
        lost=len(figures.links - linked.keys()),
        counted_twice=linked.total() - len(linked) + figures.acknowledged - len(figures.links),
        misdrawn=sum(
            drawn_instance(seed, nonce, instances) != instance
            for nonce, (instance, _, _) in figures.draws.items()
        ),
        forged=sum(
            weights not in served[instance][revision : revision + 1]
            for instance, revision, weights in figures.draws.values()
        ),
        fewest=min(revisions),
        most=max(revisions),
    )
