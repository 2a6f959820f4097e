"""A federation of hospitals: seconds, CPU and bytes from a job's submission to its posterior.

    python -m bench.holders [--holders 10] [--records 10000] [--nodes 3] [--quantiles] [--json FILE]

Real processes over TLS: sealed boxes, signatures, durable storage; `records` of each holder, which
are drawn at random and mean nothing. The job is a linear regression of one round, d = 67, or with
--quantiles five quantiles in four rounds. The agents have loaded their records before it.
"""

import sqlite3
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
from nacl.signing import SigningKey

from bench.command import measured
from bench.processes import cpu_seconds, peak_memory_mib
from bench.sites import sites, submit
from shoal import ColumnBounds
from shoal_consortium.processes import Federation
from shoal_holder.site_files import STATE_FILE
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.received import envelope_size
from shoal_protocol.trust.roster_changes import roster_of
from shoal_protocol.wire.documents import decode
from shoal_studies.catalogue.linear_regression import LinearRegressionTask
from shoal_studies.catalogue.quantiles import QuantilesTask

FEATURES: Final = tuple(f"feature_{j}" for j in range(9))
TARGET: Final = "target"
LINE: Final = LinearRegressionTask(
    features=tuple(ColumnBounds(name=name, lower=-1, upper=1) for name in FEATURES),
    target=ColumnBounds(name=TARGET, lower=-1, upper=1),
    method="plain",
)
QUANTILES: Final = QuantilesTask(
    variables=(ColumnBounds(name=TARGET, lower=-5e8, upper=5e8),),
    levels=(0.05, 0.25, 0.5, 0.75, 0.95),
    bins=1024,
    rounds=4,
)
_MILLION: Final = 1_000_000


def measure(
    directory: Path, *, holders: int, records: int, nodes: int, quantiles: bool
) -> dict[str, Any]:
    """Return the figures by their names; `records` are of each of the `holders`."""
    columns, clients = (*FEATURES, TARGET), holders * records
    services, agents = sites(
        directory,
        columns,
        {
            f"site-{seed}": np.random.default_rng(seed).uniform(-1, 1, (records, len(columns)))
            for seed in range(holders)
        },
        nodes=nodes,
        queries=["tables" if quantiles else "second_moment_matrix"],
        maximum_epsilon=1.0,
        minimum_population=100,
    )
    with Federation() as federation:
        federation.start(*services, *agents)
        working = [*services[:nodes], *agents]
        begun, cpu = time.monotonic(), cpu_seconds(working)
        task = QUANTILES if quantiles else LINE
        report = submit(directory, task, clients, few=clients // 100, colluders=records).wait()
        seconds, spent = time.monotonic() - begun, cpu_seconds(working) - cpu
        memory = {each.name: peak_memory_mib(each.pid) for each in (*services[:nodes], agents[0])}
    if set(report.cohort_sizes) != {clients}:
        raise RuntimeError("records were lost")
    return {
        "holders": holders,
        "records": clients,
        "nodes": nodes,
        "seconds": seconds,
        "CPU microseconds of a record": 1e6 * spent / clients,
        "bytes of a holder": _sent(Path(agents[0].environment["SHOAL_DATA"], STATE_FILE)),
        "bytes of a roster of a million slots": _roster_bytes(holders=1000),
        "peak MiB": memory,
    }


def _sent(state: Path) -> int:
    """Return how many bytes of bodies a data holder sent for its one job."""
    with sqlite3.connect(state) as database:
        [(join, holder)] = database.execute(
            "SELECT length(document), json_extract(document, '$.body.holder') FROM outbox"
            " WHERE kind = 'join'"
        )
        specs = [
            decode(each, RoundSpec).body for (each,) in database.execute("SELECT spec FROM rounds")
        ]
    return int(join) + sum(
        envelope_size(
            spec.sharing.kind_for(holder=holder, node=node, nodes=len(spec.compute_nodes)),
            spec.dimension,
        )
        for spec in specs
        for node in range(len(spec.compute_nodes))
    )


def _roster_bytes(*, holders: int) -> int:
    keys = (SigningKey(number.to_bytes(32, "little")).verify_key for number in range(holders))
    return len(roster_of((key, _MILLION // holders) for key in keys).encode())


if __name__ == "__main__":
    measured(__doc__, measure, holders=10, records=10_000, nodes=3, quantiles=False)
