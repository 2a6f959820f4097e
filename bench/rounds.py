"""Many mini-batch rounds of one job: what a round takes, and whether later ones take longer.

    python -m bench.rounds [--rounds 500] [--batch 64] [--clients 256] [--sites 4] [--nodes 3]

Real processes over TLS with their databases on disk: a logistic regression on 9 features, d = 10.
The patients are drawn at random and mean nothing. Answers are kept back, so that noise shows in no
timing: no round takes less than that.
"""

import time
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.command import measured
from bench.processes import cpu_seconds
from bench.sites import sites as laid_down
from bench.sites import submit as submit_to_all
from shoal import ColumnBounds
from shoal.jobs.analyst import Job
from shoal_consortium.processes import Federation, Process
from shoal_holder.release_timing import GRID_SECONDS
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.release_certificate import pack, read_certificate
from shoal_studies.catalogue.variational import LogisticRegressionTask

FEATURES: Final = tuple(f"feature_{j}" for j in range(9))
TARGET: Final = "target"
EPSILON: Final = 2.0
_COMPARED: Final = 50  # rounds at each end


def task(rounds: int, batch: int) -> LogisticRegressionTask:
    """Return the task of so many rounds."""
    return LogisticRegressionTask(
        features=tuple(ColumnBounds(name=name, lower=-1, upper=1) for name in FEATURES),
        target=ColumnBounds(name=TARGET, lower=0, upper=1),
        rounds=rounds,
        batch=batch,
    )


def measure(
    directory: Path, *, rounds: int, batch: int, clients: int, sites: int, nodes: int
) -> dict[str, Any]:
    """Return what was measured, by what it is of."""
    services, agents = make(directory, batch=batch, clients=clients, sites=sites, nodes=nodes)
    processes = [*services, *agents]
    with Federation() as federation:
        federation.start(*processes)
        used = {each.name: cpu_seconds([each]) for each in processes}
        job = submit(directory, rounds=rounds, batch=batch, clients=clients // sites * sites)
        job.wait()
        spent = {each.name: cpu_seconds([each]) - used[each.name] for each in processes}
        certificate = job.certificate() or b""
    begun = time.perf_counter()
    verify_certificate(certificate, (directory / "consortium" / "manifest.json").read_bytes())
    checked = time.perf_counter() - begun
    opened = [each.spec.body.opened_at.timestamp() for each in read_certificate(certificate).rounds]
    seconds = np.diff(opened)
    return {
        "answers are kept back, s": GRID_SECONDS,
        "seconds for a round": {
            "median": float(np.median(seconds)),
            "95 % take at most": float(np.quantile(seconds, 0.95)),
            f"first {_COMPARED}, median": float(np.median(seconds[:_COMPARED])),
            f"last {_COMPARED}, median": float(np.median(seconds[-_COMPARED:])),
        },
        "CPU of each round, ms": {name: each * 1e3 / rounds for name, each in spent.items()},
        "certificate": {
            "bytes": len(certificate),
            "bytes for a round": len(certificate) / rounds,
            "bytes for a round, as it is kept and served": len(pack(certificate)) / rounds,
            "seconds to check": checked,
        },
    }


def make(
    directory: Path, *, batch: int, clients: int, sites: int, nodes: int
) -> tuple[list[Process], list[Process]]:
    """Make a federation's files; return its services and its sites' agents, not started."""
    records = {f"site-{seed}": _patients(clients // sites, seed) for seed in range(sites)}
    rules = {"maximum_epsilon": EPSILON, "minimum_population": batch}
    return laid_down(
        directory, [*FEATURES, TARGET], records, nodes=nodes, queries=["gradient_sum"], **rules
    )


def submit(directory: Path, *, rounds: int, batch: int, clients: int) -> Job:
    """Submit a job that all clients join."""
    few = batch // 10
    return submit_to_all(
        directory,
        task(rounds, batch),
        clients,
        few=few,
        colluders=few,
        epsilon=EPSILON,
        seconds=120,
    )


def _patients(count: int, seed: int) -> NDArray[np.float64]:
    generator = np.random.default_rng(seed)
    rows = generator.uniform(-1, 1, (count, len(FEATURES)))
    odds = np.exp(rows @ np.linspace(-2, 2, len(FEATURES)))
    return np.column_stack([rows, generator.random(count) < odds / (1 + odds)])


if __name__ == "__main__":
    measured(__doc__, measure, rounds=500, batch=64, clients=256, sites=4, nodes=3)
