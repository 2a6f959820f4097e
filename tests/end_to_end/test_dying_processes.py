"""Real processes that kill themselves at durable steps and are started again by their own module.

Several die in one job. What it releases is what the simulated federation releases.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal_consortium.processes import Federation as Processes
from shoal_consortium.processes import Process
from shoal_hosting.probe import is_ready
from tests.end_to_end.test_real_processes import (
    CLIENTS,
    agents,
    simulated,
    submit,
    values_of,
    wait_until,
)
from tests.world.trust import TASK, Trust

OTHERS = ("clinic-a", "clinic-b")

Point = tuple[str, str, str]  # party, when, step

POINTS: dict[str, Sequence[Point]] = {
    "between vote and release": (
        ("compute-0", "after", "cast"),
        ("compute-1", "before", "agree"),
        ("compute-2", "after", "add_shares"),
        ("aggregator", "after", "offer_partial_sum"),
        ("trainer", "after", "add_round"),
        ("clinic-c", "after", "record_answer"),
    ),
    "between publication and its acknowledgement": (
        ("compute-0", "before", "publish"),
        ("compute-1", "after", "agree"),
        ("compute-2", "before", "add_shares"),
        ("aggregator", "after", "publish"),
        ("trainer", "before", "publish_round"),
        ("clinic-c", "before", "record_answer"),
    ),
}


class Dying:
    """A process that is to kill itself; then it is started again as it should be."""

    def __init__(self, process: Process, when: str, step: str) -> None:
        environment = {"DYING_MODULE": process.module, "DYING_WHEN": when, "DYING_STEP": step}
        self._ordinary = process
        with process.log.open("ab") as output:
            self._running = subprocess.Popen(
                [sys.executable, "-m", "tests.end_to_end.dying"],
                env={**os.environ, **process.environment, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()

    def _watch(self) -> None:
        self.status = self._running.wait()
        self._ordinary.start()

    def wait_until_ready(self) -> None:
        """Wait until it answers, if it is a service."""
        if "SHOAL_PORT" in self._ordinary.environment:
            wait_until(lambda: is_ready(self._ordinary.environment))

    def join(self) -> None:
        """Wait until it was started again, or end it if it never died."""
        self._watching.join(5.0)
        if self._watching.is_alive():
            self._running.kill()
            self._watching.join()


@contextmanager
def dying(processes: Mapping[str, Process], points: Sequence[Point]) -> Iterator[list[Dying]]:
    """Put processes that will die in the place of those that run; they run again at the end."""
    for party, _, _ in points:
        processes[party].kill()
    doomed = [Dying(processes[party], when, step) for party, when, step in points]
    try:
        for each in doomed:
            each.wait_until_ready()
        yield doomed
    finally:
        for each in doomed:
            each.join()


@pytest.mark.slow
@pytest.mark.parametrize("points", POINTS.values(), ids=POINTS)
def test_a_job_in_which_every_kind_of_party_kills_itself_releases_the_same(
    running: Processes, trust: Trust, tmp_path: Path, points: Sequence[Point]
) -> None:
    environment = {
        "HOLDING_TRUST": str(trust.directory),
        "HOLDING_SITE": "clinic-c",
    }
    site = Process("clinic-c", "tests.end_to_end.holding", environment, tmp_path / "clinic-c.log")
    processes = {**running.processes, "clinic-c": site}
    try:
        with dying(processes, points) as doomed, agents(trust, *OTHERS):
            job = submit(trust, TASK)
            report = job.wait()
        for name in running.processes:
            running[name].wait_until_ready()
        released = values_of(trust, report.rounds)
    finally:
        site.stop()

    assert [each.status for each in doomed] == [-signal.SIGKILL] * len(points)
    values, posterior = asyncio.run(simulated(trust, tmp_path, TASK))
    assert report.cohort_sizes == (CLIENTS,)
    assert released == values
    assert report.posterior.model_dump_json() == posterior
