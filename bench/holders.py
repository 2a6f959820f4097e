"""A federation of hospitals: seconds, CPU and bytes from a job's submission to its posterior.

    python -m bench.holders [--holders 10] [--records 10000] [--nodes 3] [--json FILE]

Real processes over TLS: sealed boxes, signatures, durable storage; `records` of each holder, 9
features, so d = 67. The records are drawn at random and mean nothing. The agents have started and
loaded their records before the job is submitted.
"""

import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
from nacl.signing import SigningKey

from bench.command import options, write
from bench.drive import quickstart
from bench.processes import cpu_seconds, peak_memory_mib
from bench.sites import site_agent, write_records
from demo.quickstart import first_agent_port
from shoal import Analyst, ColumnBounds, JobSettings
from shoal_consortium.processes import Federation
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
approval = "automatic"
maximum_epsilon = 1.0
delta = 1e-5
minimum_population = 100
minimum_colluders = 0
"""
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
        begun, cpu = time.monotonic(), cpu_seconds(working)
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
        memory = {each.name: peak_memory_mib(each.pid) for each in (*services[:nodes], agents[0])}
    if report.cohort_sizes != (holders * records,):
        raise RuntimeError("records were lost")
    sent, spec = _sent(directory / "data" / names[0] / STATE_FILE)
    return {
        "holders": holders,
        "records": holders * records,
        "nodes": nodes,
        "dimension": spec.dimension,
        "seconds": round(seconds, 2),
        "cpu_microseconds_per_record": round(1e6 * spent / (holders * records), 2),
        "bytes_per_holder": sent,
        "roster_bytes_per_million_slots": _roster_bytes(holders=1000),
        "peak_mib": {name: round(each, 1) for name, each in memory.items()},
    }


def _sent(state: Path) -> tuple[int, RoundSpec]:
    """Return how many bytes a data holder sent in bodies for its one job, and its round's spec."""
    with sqlite3.connect(state) as database:
        [(join, holder)] = database.execute(
            "SELECT length(document), json_extract(document, '$.body.holder') FROM letters"
            " WHERE what = 'join'"
        )
        [(encoded,)] = database.execute("SELECT spec FROM rounds")
    spec = decode(encoded, RoundSpec).body
    nodes = len(spec.compute_nodes)
    kinds = [spec.sharing.kind_for(holder=holder, node=node, nodes=nodes) for node in range(nodes)]
    return join + sum(envelope_size(kind, spec.dimension) for kind in kinds), spec


def _roster_bytes(*, holders: int) -> int:
    keys = (SigningKey(number.to_bytes(32, "little")).verify_key for number in range(holders))
    return len(roster_of((key, _MILLION // holders) for key in keys).encode())


def _write_records(path: Path, count: int, seed: int) -> None:
    rows = np.random.default_rng(seed).uniform(-1, 1, (count, len(FEATURES) + 1))
    write_records(path, [*FEATURES, TARGET], rows.tolist())


def main() -> None:
    """Measure and print."""
    asked = vars(options(__doc__, holders=10, records=10_000, nodes=3, json=Path))
    path = asked.pop("json")
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory), **asked)
    write(found, path)
    for what, figure in found.items():
        print(f"{what:32} {figure}")


if __name__ == "__main__":
    main()
