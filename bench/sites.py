"""A federation of data holders with many records each, and jobs that all their clients join."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.drive import quickstart
from demo.quickstart import agent, first_agent_port
from shoal import Analyst, JobSettings
from shoal.jobs.analyst import Job
from shoal_consortium.processes import Process
from shoal_studies.registry import Task


def sites(
    directory: Path,
    columns: Sequence[str],
    records: Mapping[str, NDArray[np.float64]],
    *,
    nodes: int,
    **rules: Any,
) -> tuple[list[Process], list[Process]]:
    """Make a federation's files; return its services and its sites' agents, not started.

    `records` has the rows of each site, shape (clients, columns); `rules` are fields of all sites'
    policy.
    """
    clients = {name: len(rows) for name, rows in records.items()}
    services = quickstart(directory, clients=clients, nodes=nodes)
    allowed = {
        "analysts": ["analyst"],
        "columns": list(columns),
        "approval": "automatic",
        "delta": 1e-5,
        "minimum_colluders": 0,
        **rules,
    }
    policy, port = directory / "policy.toml", first_agent_port(services)
    policy.write_text("".join(f"{name} = {json.dumps(each)}\n" for name, each in allowed.items()))
    agents = []
    for place, (name, rows) in enumerate(records.items()):
        path = directory / f"{name}.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(
                [["id", *columns], *([number, *row] for number, row in enumerate(rows.tolist()))]
            )
        agents.append(
            agent(directory, name, port=port + place, records=path, policy=policy, logs=directory)
        )
    return services, agents


def submit(
    directory: Path,
    task: Task,
    clients: int,
    *,
    few: int,
    colluders: int,
    epsilon: float = 1.0,
    seconds: int = 600,
) -> Job:
    """Submit a job that all `clients` join; `few` may be missing, in rounds of `seconds`."""
    opened = Analyst.open(directory / "parties" / "analyst", directory / "consortium")
    return opened.submit(
        task,
        JobSettings(
            epsilon=epsilon,
            delta=1e-7,  # below 1 over the clients of the largest federation here
            dropouts=few,
            colluders=colluders,
            minimum_population=clients,
            maximum_population=clients,
            join_seconds=600,
            round_seconds=seconds,
            grace_seconds=seconds,
        ),
    )
