"""Many mini-batch rounds of one job: what a round takes, and whether later ones take longer.

    python -m bench.rounds [--rounds 500] [--batch 64] [--clients 256] [--sites 4] [--nodes 3]

Real processes over TLS with their databases on disk: a logistic regression on 9 features, d = 10.
The patients are drawn at random and mean nothing. Answers are kept back, so that noise shows in no
timing: no round takes less than that.
"""

import json
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.command import options, show
from bench.drive import quickstart
from bench.processes import cpu_seconds, peak_memory_mib, service_client
from bench.sites import site_agent, write_records
from demo.quickstart import first_agent_port
from shoal import Analyst, ColumnBounds, JobSettings
from shoal.jobs.analyst import Job
from shoal_consortium.processes import Federation, Process
from shoal_holder.release_timing import GRID_SECONDS
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.release_certificate import pack
from shoal_protocol.studies.variational import LogisticRegressionTask

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
        report = job.wait()
        entries = _ledger(services[-1])
        spent = {each.name: cpu_seconds([each]) - used[each.name] for each in processes}
        peaks = {each.name: peak_memory_mib(each.pid) for each in processes}
        certificate = job.certificate() or b""
    begun = time.perf_counter()
    verify_certificate(certificate, (directory / "consortium" / "manifest.json").read_bytes())
    checked = time.perf_counter() - begun
    seconds = np.diff([datetime.fromisoformat(each["at"]).timestamp() for each in entries])
    return {
        "answers are kept back, s": GRID_SECONDS,
        "seconds for a round": {
            "median": float(np.median(seconds)),
            "95 % take at most": float(np.quantile(seconds, 0.95)),
            f"first {_COMPARED}, median": float(np.median(seconds[:_COMPARED])),
            f"last {_COMPARED}, median": float(np.median(seconds[-_COMPARED:])),
        },
        "CPU of each round, ms": {name: each * 1e3 / rounds for name, each in spent.items()},
        "peak MiB": peaks,
        "certificate": {
            "bytes": len(certificate),
            "bytes for a round": len(certificate) / rounds,
            "bytes for a round, as it is kept and served": len(pack(certificate)) / rounds,
            "seconds to check": checked,
        },
        "rounds that released a sum": len(report.rounds),
        "rounds that asked one client": report.participations.most,
        "epsilon": report.privacy.epsilon,
    }


def make(
    directory: Path, *, batch: int, clients: int, sites: int, nodes: int
) -> tuple[list[Process], list[Process]]:
    """Make a federation's files; return its services and its sites' agents, not started."""
    names = [f"site-{number}" for number in range(sites)]
    services = quickstart(directory, clients=dict.fromkeys(names, clients // sites), nodes=nodes)
    for seed, name in enumerate(names):
        _write_patients(directory / f"{name}.csv", clients // sites, seed)
    port = first_agent_port(services)
    return services, [
        _agent(directory, name, port + place, batch) for place, name in enumerate(names)
    ]


def submit(
    directory: Path, *, rounds: int, batch: int, clients: int, analyst: str = "analyst"
) -> Job:
    """Submit a job that all clients join."""
    opened = Analyst.open(directory / "parties" / analyst, directory / "consortium")
    return opened.submit(
        task(rounds, batch),
        JobSettings(
            epsilon=EPSILON,
            delta=1e-5,
            dropouts=batch // 10,
            colluders=batch // 10,
            minimum_population=clients,
            maximum_population=clients,
            join_seconds=600,
            round_seconds=120,
            grace_seconds=120,
        ),
    )


def _agent(directory: Path, name: str, port: int, batch: int) -> Process:
    policy = directory / "policy.toml"
    columns = [*FEATURES, TARGET]
    policy.write_text(
        f'analysts = ["analyst"]\nqueries = ["gradient_sum"]\n'
        f'columns = {json.dumps(columns)}\napproval = "automatic"\n'
        f"maximum_epsilon = {EPSILON}\ndelta = 1e-5\n"
        f"minimum_population = {batch}\nminimum_colluders = 0\n"
    )
    return site_agent(directory, name, port)


def _write_patients(path: Path, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.uniform(-1, 1, (count, len(FEATURES)))
    odds = np.exp(rows @ np.linspace(-2, 2, len(FEATURES)))
    ill = generator.random(count) < odds / (1 + odds)
    each = zip(rows.tolist(), ill, strict=True)
    write_records(path, [*FEATURES, TARGET], ([*row, int(is_ill)] for row, is_ill in each))


def _ledger(trainer: Process) -> list[dict[str, Any]]:
    client, url = service_client(trainer)
    token = Path(trainer.environment["SHOAL_DATA"], "operator.token").read_text().strip()
    client.headers["Authorization"] = f"Bearer {token}"
    entries: list[dict[str, Any]] = []
    with client:
        after: int | None = 0
        while after is not None:
            page = client.get(f"{url}/v1/ledger", params={"after": after}).json()
            entries += page["entries"]
            after = page["next"]
    return entries


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    asked = options(__doc__, arguments, rounds=500, batch=64, clients=256, sites=4, nodes=3)
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory), **vars(asked))
    show(found)


if __name__ == "__main__":
    main()
