"""A federation of hospitals: seconds, CPU and bytes from a job's submission to its posterior.

    python -m bench.holders [--holders 10] [--records 10000] [--nodes 3] [--json FILE]

Real processes over TLS: sealed boxes, signatures, durable storage; `records` of each holder, 9
features, so d = 67. The records are drawn at random and mean nothing. The agents have started and
loaded their records before the job is submitted.
"""

import argparse
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from nacl.signing import SigningKey

from bench.drive import quickstart
from bench.sites import site_agent, write_records
from demo.federation import Federation, Process
from demo.quickstart import first_agent_port
from shoal import Analyst, ColumnBounds, JobSettings
from shoal_holder.site_files import STATE_FILE
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.received import envelope_size
from shoal_protocol.studies.linear_regression import LinearRegressionTask
from shoal_protocol.trust.roster_changes import roster_of
from shoal_protocol.wire.documents import decode

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
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_MILLION: Final = 1_000_000


def measure(directory: Path, *, holders: int, records: int, nodes: int) -> dict[str, Any]:
    """Return the figures by their names; `records` are of each of the `holders`."""
    names = [f"site-{number}" for number in range(holders)]
    services = quickstart(directory, clients=dict.fromkeys(names, records), nodes=nodes)
    (directory / "policy.toml").write_text(POLICY.replace("'", '"'))
    for seed, name in enumerate(names):
        _write_records(directory / f"{name}.csv", records, seed)
    port = first_agent_port(services)
    agents = [site_agent(directory, name, port + place) for place, name in enumerate(names)]
    with Federation() as federation:
        federation.start(*services, *agents)
        working = [*services[:nodes], *agents]
        analyst = Analyst.open(directory / "parties" / "analyst", directory / "consortium")
        few = holders * records // 100
        cpu, begun = cpu_seconds(working), time.monotonic()
        job = analyst.submit(
            TASK,
            JobSettings(
                epsilon=1.0,
                delta=1e-5,
                dropouts=few,
                colluders=records,
                minimum_population=holders * records,
                maximum_population=holders * records,
                join_seconds=600,
                round_seconds=600,
                grace_seconds=600,
            ),
        )
        report = job.wait()
        seconds, spent = time.monotonic() - begun, cpu_seconds(working) - cpu
        memory = {each.name: each.peak_memory_mib for each in (*services[:nodes], agents[0])}
    if report.cohort_sizes != (holders * records,):
        raise RuntimeError("records were lost")
    sent, dimension = _sent_bytes(directory / "data" / names[0] / STATE_FILE)
    return {
        "holders": holders,
        "records": holders * records,
        "nodes": nodes,
        "dimension": dimension,
        "seconds": round(seconds, 2),
        "cpu_microseconds_per_record": round(1e6 * spent / (holders * records), 2),
        "bytes_per_holder": sent,
        "roster_bytes_per_million_slots": _roster_bytes(holders=1000),
        "peak_mib": {name: round(each, 1) for name, each in memory.items()},
    }


def cpu_seconds(processes: Iterable[Process]) -> float:
    """Return the CPU time so far of these processes and their children, a vault's own among them.

    Raises:
        OSError: one of them has ended.
    """
    ticks, left = 0, [each.pid for each in processes]
    while left:
        pid = left.pop()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))  # its own, and of children that have ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            left += map(int, (thread / "children").read_text().split())
    return ticks / _TICKS


def _sent_bytes(state: Path) -> tuple[int, int]:
    """Return how many bytes a data holder sent in bodies for its one job, and the dimension."""
    with sqlite3.connect(state) as database:
        [(join, holder)] = database.execute(
            "SELECT length(document), json_extract(document, '$.body.holder') FROM joins"
        )
        [(encoded,)] = database.execute("SELECT spec FROM rounds")
    spec = decode(encoded, RoundSpec).body
    nodes = len(spec.compute_nodes)
    kinds = [spec.sharing.kind_for(holder=holder, node=node, nodes=nodes) for node in range(nodes)]
    return join + sum(envelope_size(kind, spec.dimension) for kind in kinds), spec.dimension


def _roster_bytes(*, holders: int) -> int:
    keys = (SigningKey(number.to_bytes(32, "little")).verify_key for number in range(holders))
    return len(roster_of((key, _MILLION // holders) for key in keys).encode())


def _write_records(path: Path, count: int, seed: int) -> None:
    rows = np.random.default_rng(seed).uniform(-1, 1, (count, len(FEATURES) + 1))
    write_records(path, [*FEATURES, TARGET], rows.tolist())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--holders", type=int, default=10)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments, _ = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(
            Path(directory),
            holders=arguments.holders,
            records=arguments.records,
            nodes=arguments.nodes,
        )
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    for what, figure in found.items():
        print(f"{what:32} {figure}")


if __name__ == "__main__":
    main()
