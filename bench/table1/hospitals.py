"""The same clients in ten data holders: what all services and agents spend on a job's round.

From the job's submission to its posterior, so joins, encoding, noise and the learner are in it; the
agents have started, read their records and opened nothing. Records are drawn at random.
"""

import time
from pathlib import Path
from typing import Final

import numpy as np

from bench.sites import sites, submit
from bench.table1.costs import Cost, Meter
from bench.table1.services import start, vector_query, vector_task
from shoal_consortium.processes import Federation

HOLDERS: Final = 10


def measure(directory: Path, *, clients: int, dimensions: list[int], nodes: int) -> dict[int, Cost]:
    """Return by dimension what a round of so many clients takes."""
    each, columns = clients // HOLDERS, vector_query(max(dimensions)).column_names
    services, agents = sites(
        directory,
        columns,
        {
            f"site-{seed}": np.random.default_rng(seed).integers(-50, 50, (each, len(columns)))
            / 100
            for seed in range(HOLDERS)
        },
        nodes=nodes,
        queries=["vector_sum"],
        maximum_epsilon=20,
        minimum_population=2,
        declare=False,
    )
    found = {}
    with Federation() as federation:
        start(federation, [*services, *agents])
        for entries in dimensions:
            meter = Meter([*services, *agents])
            with meter:
                report = submit(
                    directory,
                    vector_task(entries),
                    clients,
                    few=clients // 100,
                    colluders=each,
                    seconds=1800,
                ).wait()
            if report.cohort_sizes != (clients,):
                raise RuntimeError("records were lost")
            found[entries] = Cost(cpu_seconds=meter.cpu_seconds, run=clients)
            time.sleep(1.0)  # for what was erased and is checked afterwards
    return found
