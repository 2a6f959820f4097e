"""Seconds from the first upload to the published result, and each process's peak memory.

    python -m bench.full_path [--clients 2000] [--sites 2] [--nodes 3]

Real processes over TLS: sealed boxes, signatures, durable storage; one patient per client; 9
features, so d = 66. The patients are drawn at random and mean nothing.
"""

import argparse
import csv
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

from bench.drive import quickstart
from demo.federation import Federation, Process
from demo.quickstart import agent, first_agent_port
from demo.watching import held_shares, wait_until
from shoal import Analyst, ColumnBounds, JobSettings
from shoal_protocol.studies.linear_regression import LinearRegressionTask

FEATURES: Final = tuple(f"feature_{j}" for j in range(9))
TARGET: Final = "target"
TASK: Final = LinearRegressionTask(
    features=tuple(ColumnBounds(name=name, lower=-1, upper=1) for name in FEATURES),
    target=ColumnBounds(name=TARGET, lower=-1, upper=1),
    method="plain",
)
POLICY: Final = f"""\
analysts = ["analyst"]
queries = ["second_moment_matrix"]
columns = {[*FEATURES, TARGET]}
maximum_epsilon = 1.0
delta = 1e-5
minimum_population = 100
minimum_colluders = 0
"""


def measure(directory: Path, *, clients: int, sites: int, nodes: int) -> dict[str, float]:
    """Return seconds and MiB by what they are of."""
    names = [f"site-{number}" for number in range(sites)]
    services = quickstart(directory, clients=dict.fromkeys(names, clients // sites), nodes=nodes)
    (directory / "policy.toml").write_text(POLICY.replace("'", '"'))
    for seed, name in enumerate(names):
        _write_patients(directory / f"{name}.csv", clients // sites, seed)
    port = first_agent_port(services)
    agents = [_agent(directory, name, port + place) for place, name in enumerate(names)]
    with Federation() as federation:
        federation.start(*services, *agents)
        analyst = Analyst.open(directory / "parties" / "analyst", directory / "consortium")
        begun = time.monotonic()
        job = analyst.submit(
            TASK,
            JobSettings(
                epsilon=1.0,
                delta=1e-5,
                dropouts=clients // 100,
                colluders=clients // 100,
                minimum_population=clients // sites * sites,
                maximum_population=clients // sites * sites,
                join_seconds=600,
                round_seconds=600,
                grace_seconds=600,
            ),
        )
        wait_until(lambda: job.state().rounds, "the round")
        round_id = job.state().rounds[0].round
        wait_until(lambda: any(held_shares(node, round_id) for node in services[:nodes]), "a share")
        first = time.monotonic()
        report = job.wait()
        ended = time.monotonic()
        memory = {
            f"{process.name}, peak MiB": process.peak_memory_mib for process in [*services, *agents]
        }
    if report.cohort_sizes != (report.population_size,):
        raise RuntimeError("clients were lost")
    return {"joining, s": first - begun, "first upload to posterior, s": ended - first, **memory}


def _agent(directory: Path, name: str, port: int) -> Process:
    records, policy = directory / f"{name}.csv", directory / "policy.toml"
    return agent(directory, name, port=port, records=records, policy=policy, logs=directory)


def _write_patients(path: Path, count: int, seed: int) -> None:
    rows = np.random.default_rng(seed).uniform(-1, 1, (count, len(FEATURES) + 1))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*FEATURES, TARGET])
        writer.writerows(rows.tolist())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=2000)
    parser.add_argument("--sites", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(
            Path(directory),
            clients=arguments.clients,
            sites=arguments.sites,
            nodes=arguments.nodes,
        )
    for what, figure in found.items():
        print(f"{what:32} {figure:8.1f}")


if __name__ == "__main__":
    main()
