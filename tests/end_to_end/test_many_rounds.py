"""A job of many rounds over real processes, each of which is killed once in the middle of it."""

import time
from pathlib import Path

import pytest

from bench import rounds
from shoal.jobs.analyst import Job
from shoal_consortium.processes import Federation
from shoal_protocol.certificates.checks import verify_certificate

ROUNDS, BATCH, CLIENTS = 14, 8, 16
WAIT_SECONDS = 120.0


def reach(job: Job, number: int) -> None:
    """Wait until a round of the job has begun."""
    latest = time.monotonic() + WAIT_SECONDS
    while sum(job.state().round_counts.values()) <= number:
        assert time.monotonic() < latest, "the job does not go on"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_job_of_many_rounds_survives_the_death_of_every_kind_of_process(tmp_path: Path) -> None:
    directory = tmp_path / "federation"
    services, agents = rounds.make(directory, batch=BATCH, clients=CLIENTS, sites=2, nodes=3)
    with Federation() as federation:
        federation.start(*services, *agents)
        job = rounds.submit(directory, rounds=ROUNDS, batch=BATCH, clients=CLIENTS)
        for number, name in enumerate(["trainer", "compute-1", "aggregator", "site-0"], start=1):
            reach(job, 3 * number)
            federation[name].kill()
            federation[name].start()
            federation[name].wait_until_ready()
        report = job.wait()
        certificate = job.certificate()

    assert report.lost_rounds == ()
    assert report.cohort_sizes == (BATCH,) * ROUNDS
    most = ROUNDS * BATCH // CLIENTS
    assert (report.participations.least, report.participations.most) == (most, most)
    assert certificate is not None
    verify_certificate(certificate, (directory / "consortium" / "manifest.json").read_bytes())


@pytest.mark.slow
def test_what_a_round_takes_is_measured_of_every_process(tmp_path: Path) -> None:
    figures = rounds.measure(tmp_path, rounds=3, batch=BATCH, clients=CLIENTS, sites=2, nodes=2)
    names = {"compute-0", "compute-1", "aggregator", "trainer", "site-0", "site-1"}
    assert figures["CPU of each round, ms"].keys() == names
    assert all(each > 0 for each in figures["CPU of each round, ms"].values())
    assert figures["seconds for a round"]["median"] >= figures["answers are kept back, s"]
