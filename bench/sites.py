"""Lays down what agents of a benchmark read: records by id, and where their policy is."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from demo.quickstart import agent
from shoal_consortium.processes import Process


def site_agent(directory: Path, name: str, port: int) -> Process:
    """Return the agent of a site, not started; its records and all sites' policy are laid down."""
    records, policy = directory / f"{name}.csv", directory / "policy.toml"
    return agent(directory, name, port=port, records=records, policy=policy, logs=directory)


def write_records(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write records of `columns`, one a row, each with an id."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *columns])
        writer.writerows([number, *row] for number, row in enumerate(rows))
