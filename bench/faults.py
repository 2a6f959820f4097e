"""Many jobs in the simulation, each with random faults of all kinds; counts what was lost.

`python -m bench.faults --rounds 300 --seed 1`. The services and data holders are the real ones, on
a made-up network; every envelope that was ever sent is opened to judge each released sum. A share
is acknowledged when a node said so, heard or not, and lost when the node's signed holdings, or a
sum over its cohort, lack it. It ends with status 1 if one was lost or counted twice.
"""

import asyncio
import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from bench.command import options
from shoal_protocol.sharing.schemes import ADDITIVE, Sharing, ThresholdSharing
from tests.world.audit import audit
from tests.world.durable import DurableSteps
from tests.world.federation import Federation
from tests.world.losses import Losses, count_losses
from tests.world.trust import HOLDER_POLICY, SITES, TASK_WITH_PROJECTION, Trust, make_trust
from tests.world.weather import faults_seen, forecast, live_through

# nodes and sharing, one for every job in turn
FEDERATIONS: Final[tuple[tuple[int, Sharing], ...]] = (
    (3, ADDITIVE),
    (4, ThresholdSharing(threshold=3)),
    (5, ThresholdSharing(threshold=3)),
)
HOLDERS: Final = {
    site: {"policy": HOLDER_POLICY.model_copy(update={"minimum_threshold": 3})} for site in SITES
}
_trusts: dict[int, Trust] = {}  # of a worker process, by number of nodes


@dataclass
class Tally:
    """What befell jobs, and what came of their rounds."""

    jobs: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    published: int = 0
    abandoned: Counter[str] = field(default_factory=Counter)  # by reason
    losses: Losses = field(default_factory=Losses)
    violations: list[str] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """Return how many rounds were announced."""
        return self.published + self.abandoned.total()

    def add(self, other: "Tally") -> None:
        """Count another's jobs too."""
        self.jobs += other.jobs
        self.faults += other.faults
        self.published += other.published
        self.abandoned += other.abandoned
        self.losses += other.losses
        self.violations += other.violations

    @property
    def is_clean(self) -> bool:
        """Tell whether nothing was lost, counted twice or otherwise wrong."""
        wrong = self.losses.lost + self.losses.double_counted + self.losses.unexplained
        return not wrong and not self.violations


async def run_job(trust: Trust, directory: Path, sharing: Sharing, seed: str) -> Tally:
    """Run one job in random weather, and judge it."""
    steps, tally = DurableSteps(), Tally(jobs=1)
    with steps.watched():
        async with Federation(trust, directory, holders=HOLDERS) as federation:
            nodes = len(federation.nodes)
            weather = forecast(seed, federation.services, spare=nodes - sharing.needed(nodes))
            job = await live_through(
                federation, weather, steps, task=TASK_WITH_PROJECTION, sharing=sharing
            )
            state = await federation.finish(job, seconds=200_000, tick=30.0)
            tally.faults = faults_seen(federation, weather, steps)
            federation.absent.clear()
            await federation.start_the_dead()
            for each in state["rounds"]:
                if await federation.result(each["round"]) is not None:
                    tally.published += 1
                else:
                    tally.abandoned[await _reason(federation, each["round"])] += 1
            tally.losses = await count_losses(federation)
            try:
                await audit(federation)
            except AssertionError as error:
                tally.violations.append(f"{seed}: {error}")
    return tally


async def _reason(federation: Federation, round_id: str) -> str:
    for end in (await federation.outcome(round_id))[:1]:
        return str(end["body"]["reason"]["code"])
    return "not accepted by all services in time"


def _work(seed: int, number: int) -> Tally:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory() as directory:
        nodes, sharing = FEDERATIONS[number % len(FEDERATIONS)]
        if nodes not in _trusts:
            home = Path(tempfile.mkdtemp(prefix="shoal-faults-"))
            atexit.register(shutil.rmtree, home)
            _trusts[nodes] = make_trust(home, nodes=nodes, minimum_threshold=3)
        work = run_job(_trusts[nodes], Path(directory), sharing, f"{seed}/{number}")
        return asyncio.run(work)


def tallies(seed: int, workers: int) -> Iterator[Tally]:
    """Yield one job's tally after another, for ever; which they are depends on the seed only."""
    with ProcessPoolExecutor(workers) as pool:
        under_way: deque[Future[Tally]] = deque()
        number = 0
        try:
            while True:
                while len(under_way) < 2 * workers:
                    under_way.append(pool.submit(_work, seed, number))
                    number += 1
                yield under_way.popleft().result()
        finally:
            for each in under_way:
                each.cancel()


def table(total: Tally) -> str:
    """Return the figures of docs/measurements.md, and the faults by kind."""
    why = ", ".join(f"{count} {reason}" for reason, count in total.abandoned.most_common())
    losses = total.losses
    columns = {
        "where": "simulation",
        "faults injected": f"{total.faults.total():,}",
        "rounds run": f"{total.rounds:,}",
        "published": f"{total.published:,}",
        "abandoned (why)": f"{total.abandoned.total():,} ({why})",
        "shares acknowledged": f"{losses.acknowledged:,}",
        "lost": f"{losses.lost:,}",
        "double-counted": f"{losses.double_counted:,}",
    }
    lines = [
        f"| {' | '.join(columns)} |",
        f"|{'---|' * len(columns)}",
        f"| {' | '.join(columns.values())} |",
        "",
        f"{total.jobs:,} jobs. Faults by kind:",
        *(f"- {count:,} {kind}" for kind, count in total.faults.most_common()),
    ]
    if losses.unexplained:
        lines.append(f"{losses.unexplained} sums are wrong in another way")
    return "\n".join(lines)


def main() -> None:
    """Run jobs until there are as many rounds as asked for, and print what came of them."""
    wanted = options(__doc__, rounds=300, seed=1, workers=os.cpu_count() or 1)
    total = Tally()
    with suppress(KeyboardInterrupt):  # what was done so far is judged all the same
        for tally in tallies(wanted.seed, wanted.workers):
            total.add(tally)
            if total.jobs % 10 == 0:
                print(f"{total.jobs} jobs, {total.rounds} rounds", file=sys.stderr, flush=True)
            if total.rounds >= wanted.rounds:
                break
    print(table(total), flush=True)
    for violation in total.violations:
        print(violation, file=sys.stderr)
    sys.exit(0 if total.is_clean else 1)


if __name__ == "__main__":
    main()
