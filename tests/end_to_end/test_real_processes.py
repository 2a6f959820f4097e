"""Services in processes of their own, over TLS, with one of them killed; agents hold fixed noise.

What they release is what the simulated federation releases, to the last digit.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from shoal import Analyst, Federation, JobSettings
from shoal.estimators import LinearRegressionInBounds
from shoal.jobs.analyst import Job
from shoal_agent.data_holder import DataHolder
from shoal_agent.status import HolderStatus
from shoal_consortium.processes import Federation as Processes
from shoal_protocol.certificates.release_certificate import read_certificate
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.phases import JobPhase
from shoal_protocol.wire.vectors import decode_uint64
from shoal_studies.catalogue.linear_regression import LinearRegressionTask
from tests.end_to_end.holding import POLICY, data_of, holder_of
from tests.world.federation import Federation as Simulated
from tests.world.loopback import pinned_client
from tests.world.people import csv_of
from tests.world.trust import SITES, TASK, TASK_WITH_PROJECTION, Trust

CLIENTS = sum(SITES.values())


@contextmanager
def agents(trust: Trust, *sites: str) -> Iterator[None]:
    """Run data holders in threads until the block ends."""
    over = threading.Event()
    holders = [holder_of(trust, site) for site in sites]

    def until(status: HolderStatus) -> bool:
        return over.is_set()

    threads = [
        threading.Thread(target=holder.run, kwargs={"until": until, "poll_seconds": 0.1})
        for holder in holders
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for holder, thread in zip(holders, threads, strict=True):
            thread.join()
            asyncio.run(holder.close())


JOB: dict[str, Any] = {
    "epsilon": 2.0,
    "delta": 1e-6,
    "dropouts": 2,
    "colluders": 2,
    "minimum_population": 10,
    "maximum_population": CLIENTS,
    "join_seconds": 60,
    "round_seconds": 60,
    "grace_seconds": 60,
}


def where(trust: Trust) -> tuple[Path, Path]:
    return trust.directory / "parties" / "analyst", trust.directory / "consortium"


def submit(trust: Trust, task: LinearRegressionTask, **changes: Any) -> Job:
    return Analyst.open(*where(trust)).submit(task, JobSettings(**(JOB | changes)))


def federation(trust: Trust) -> Federation:
    return Federation.open(*where(trust), JobSettings(**JOB), show_progress=False)


def estimator(task: LinearRegressionTask) -> LinearRegressionInBounds:
    return LinearRegressionInBounds(
        **{name: getattr(task, name) for name in type(task).model_fields if name != "name"}
    )


def get(party: ServiceParty, path: str) -> Any:
    """Ask a service over TLS, as anybody may."""

    async def ask() -> httpx.Response:
        async with pinned_client(party.certificate, base_url=party.url) as client:
            return await client.get(path)

    answer = asyncio.run(ask())
    assert answer.status_code == 200, answer.text
    return json.loads(answer.content)


def values_of(trust: Trust, rounds: tuple[str, ...]) -> list[list[int]]:
    aggregator = trust.consortium.manifest.aggregator
    outcomes = [get(aggregator, f"/v1/rounds/{each}/outcome")["documents"] for each in rounds]
    results = [end["body"] for end, *_ in outcomes]
    return [decode_uint64(each["values"]).view(np.int64).tolist() for each in results]


async def simulated(trust: Trust, directory: Path, task: LinearRegressionTask) -> Any:
    async with Simulated(trust, directory) as federation:
        report = await federation.learn(task=task)
        results = [await federation.result(each) for each in report.rounds]
        values = [decode_uint64(each["values"]).view(np.int64).tolist() for each in results if each]
        return values, report.posterior.model_dump_json()


def shoal(*arguments: str, status: int) -> str:
    """Run the command in a process of its own; return what it printed."""
    command = [sys.executable, "-m", "shoal_command", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout


def check_certificate(trust: Trust, job: Job, file: Path) -> None:
    """Fetch a job's certificate by the command and check it, as it is and with a byte changed."""
    consortium = trust.directory / "consortium"
    who = ["--party", str(trust.directory / "parties" / "analyst"), "--consortium", str(consortium)]
    assert str(file) in shoal("certificate", "fetch", job.id, *who, "--out", str(file), status=0)
    assert file.read_bytes() == job.certificate()

    by = ["--manifest", str(consortium / "manifest.json")]
    assert job.id in shoal("certificate", "verify", str(file), *by, status=0)
    file.write_bytes(file.read_bytes().replace(b'"cohort_size":14', b'"cohort_size":15', 1))
    assert shoal("certificate", "verify", str(file), *by, status=1) == ""


def knows(status: HolderStatus, job: Job) -> bool:
    return any(each.job == job.id for each in status.jobs)


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(1200):
        if holds():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it never came about")


@pytest.mark.essential
def test_real_processes_and_the_simulation_release_the_same_numbers(
    running: Processes, trust: Trust, tmp_path: Path
) -> None:
    with agents(trust, *SITES):
        there = federation(trust)
        model = estimator(TASK_WITH_PROJECTION).fit(there)
    report = model.report_
    assert report is not None
    job = Analyst.open(*where(trust)).job(report.job)
    check_certificate(trust, job, tmp_path / "certificate.json")
    again = estimator(TASK_WITH_PROJECTION).fit_from(there.resume(report.job))
    assert again.report_ == report

    values, posterior = asyncio.run(simulated(trust, tmp_path, TASK_WITH_PROJECTION))
    assert report.cohort_sizes == (CLIENTS, CLIENTS)
    assert values_of(trust, report.rounds) == values
    assert report.posterior.model_dump_json() == posterior


@pytest.mark.essential
def test_a_compute_process_killed_in_the_middle_of_a_round_changes_nothing(
    running: Processes, trust: Trust, tmp_path: Path
) -> None:
    victim = trust.consortium.manifest.compute_nodes[1]
    job = submit(trust, TASK)
    last = holder_of(trust, "clinic-c")
    last.run(until=lambda status: knows(status, job), poll_seconds=0.1)
    asyncio.run(last.close())

    with agents(trust, "clinic-a", "clinic-b"):
        wait_until(lambda: any(each.phase == "collecting" for each in job.state().rounds))
        path = f"/v1/rounds/{job.state().rounds[0].round}"
        wait_until(lambda: get(victim, path)["held"] == len(SITES) - 1)
        running["compute-1"].kill()
        assert job.state().phase is JobPhase.RUNNING
        running.start(running["compute-1"])  # what it charged is asked before anything is spent
        with agents(trust, "clinic-c"):
            report = job.wait()

    values, posterior = asyncio.run(simulated(trust, tmp_path, TASK))
    assert report.cohort_sizes == (CLIENTS,)
    assert values_of(trust, report.rounds) == values
    assert report.posterior.model_dump_json() == posterior


def is_over(status: HolderStatus, job: Job) -> bool:
    return any(each.job == job.id and each.ended is not None for each in status.jobs)


def as_an_owner_would(trust: Trust, site: str, directory: Path) -> DataHolder:
    """Open a data holder from files, as the documentation shows it: the noise is real."""
    home = directory / site
    shutil.copytree(trust.directory / "clients" / site, home)
    (home / "records.csv").write_text(csv_of(trust.records(site)))
    allowed = POLICY.model_dump(mode="json", exclude_none=True)
    (home / "policy.toml").write_text(
        "\n".join(f"{name} = {json.dumps(each)}" for name, each in allowed.items())
    )
    return DataHolder.open(home, trust.directory / "consortium", data_of(trust, site))


@pytest.mark.essential
def test_a_user_submits_a_job_watches_it_and_keeps_the_signed_report(
    running: Processes, trust: Trust, tmp_path: Path
) -> None:
    seen: list[JobPhase] = []
    holders = [as_an_owner_would(trust, site, tmp_path) for site in SITES]
    with ThreadPoolExecutor(len(holders)) as pool:
        job = submit(trust, TASK)
        over = partial(is_over, job=job)
        done = [pool.submit(each.run, until=over, poll_seconds=0.1) for each in holders]
        report = job.wait(progress=lambda state: seen.append(state.phase))
        for each in done:
            each.result()
    statuses = [asyncio.run(holder.status()) for holder in holders]
    for holder in holders:
        asyncio.run(holder.close())

    low, high = report.posterior.interval(0.9).T
    assert (low < high).all()
    assert report.cohort_sizes == (CLIENTS,)
    assert report.privacy.epsilon <= 2.0
    assert seen[0] is JobPhase.JOINING
    assert job.state().phase is JobPhase.FINISHED
    assert [status.jobs[-1].rounds[0].answers for status in statuses] == list(SITES.values())
    certificate = job.certificate()
    assert certificate is not None
    held = read_certificate(certificate)
    assert job.result() == report
    assert held.report.digest == report.digest
