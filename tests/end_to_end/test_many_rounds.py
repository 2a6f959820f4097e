"""What the rounds of a job take of real processes; and how a test waits for one of them."""

import time
from pathlib import Path

import pytest

from bench import rounds
from shoal.jobs.analyst import Job

BATCH, CLIENTS = 8, 16
WAIT_SECONDS = 120.0


def reach(job: Job, number: int) -> None:
    """Wait until a round of the job has begun."""
    latest = time.monotonic() + WAIT_SECONDS
    while sum(job.state().round_counts.values()) <= number:
        assert time.monotonic() < latest, "the job does not go on"
        time.sleep(0.05)


@pytest.mark.slow
def test_what_a_round_takes_is_measured_of_every_process(tmp_path: Path) -> None:
    figures = rounds.measure(tmp_path, rounds=3, batch=BATCH, clients=CLIENTS, sites=2, nodes=2)
    names = {"compute-0", "compute-1", "aggregator", "trainer", "site-0", "site-1"}
    assert figures["CPU of each round, ms"].keys() == names
    assert all(each > 0 for each in figures["CPU of each round, ms"].values())
    assert figures["seconds for a round"]["median"] >= figures["answers are kept back, s"]
