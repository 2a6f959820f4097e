"""The same clients in ten data holders: what all services and agents spend on a job's round.

From the job's submission to its posterior, so joins, encoding, noise and the learner are in it; the
agents have started, read their records and opened nothing. Records are drawn at random.
"""

import json
import time
from pathlib import Path
from typing import Final

import numpy as np

from bench.drive import quickstart
from bench.sites import site_agent, write_records
from bench.table1.costs import Cost, Meter
from bench.table1.services import start, vector_query, vector_task
from demo.quickstart import first_agent_port
from shoal import Analyst, JobSettings
from shoal_consortium.processes import Federation
from shoal_protocol.sharing.received import envelope_size
from shoal_protocol.sharing.shares import ShareKind

HOLDERS: Final = 10
_SECONDS: Final = 1800


def measure(directory: Path, *, clients: int, dimensions: list[int], nodes: int) -> dict[int, Cost]:
    """Return by dimension what a round of so many clients takes."""
    names = [f"site-{number}" for number in range(HOLDERS)]
    each = clients // HOLDERS
    services = quickstart(directory, clients=dict.fromkeys(names, each), nodes=nodes)
    columns = vector_query(max(dimensions)).column_names
    (directory / "policy.toml").write_text(
        f'analysts = ["analyst"]\nqueries = ["vector_sum"]\ncolumns = {json.dumps(columns)}\n'
        'approval = "automatic"\n'
        "maximum_epsilon = 20\ndelta = 1e-5\nminimum_population = 2\nminimum_colluders = 0\n"
        "declare = false\n"
    )
    for seed, name in enumerate(names):
        rows = np.random.default_rng(seed).integers(-50, 50, (each, len(columns))) / 100
        write_records(directory / f"{name}.csv", columns, rows.tolist())
    port = first_agent_port(services)
    agents = [site_agent(directory, name, port + place) for place, name in enumerate(names)]
    found = {}
    with Federation() as federation:
        start(federation, [*services, *agents])
        analyst = Analyst.open(directory / "parties" / "analyst", directory / "consortium")
        for entries in dimensions:
            meter = Meter([*services, *agents])
            with meter:
                job = analyst.submit(vector_task(entries), _settings(clients))
                report = job.wait()
            if report.cohort_sizes != (clients,):
                raise RuntimeError("records were lost")
            found[entries] = meter.cost(run=clients, received_bytes=_sent(entries, nodes))
            time.sleep(1.0)  # for what was erased and is checked afterwards
    return found


def _sent(entries: int, nodes: int) -> int:
    """Return the bytes of all envelopes: of each data holder one vector, and seeds."""
    vector = envelope_size(ShareKind.VECTOR, entries + 1)
    return HOLDERS * (vector + (nodes - 1) * envelope_size(ShareKind.SEED, entries + 1))


def _settings(clients: int) -> JobSettings:
    return JobSettings(
        epsilon=1.0,
        delta=1e-5,
        dropouts=clients // 100,
        colluders=clients // HOLDERS,
        minimum_population=clients,
        maximum_population=clients,
        join_seconds=_SECONDS,
        round_seconds=_SECONDS,
        grace_seconds=_SECONDS,
    )
