"""Counts values, gaps and whole records of a data holder, for its owner alone."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shoal_holder.records import Records
from shoal_protocol.queries.bounds import ColumnBounds


@dataclass(frozen=True)
class ClippingReport:
    """A record counts that has a value in every column; `outside_bounds` is of those with bounds.

    `clients_over_the_bound` have more records than a job takes of each; None if no job is known.
    """

    clients: int
    rows: int
    records: int
    most_records_of_a_client: int
    clients_without_a_record: int
    clients_over_the_bound: int | None
    columns: tuple[str, ...]
    missing: dict[str, int]
    outside_bounds: dict[str, int]


def clipping_report(
    found: Records, bounds: Mapping[str, ColumnBounds], most: int | None
) -> ClippingReport:
    """Count records, and hold them to the columns of a job that takes `most` of each client."""
    whole = ~np.isnan(found.values).any(axis=1)
    of_clients = np.add.reduceat(whole.astype(np.int64), found.starts[:-1])
    columns = dict(zip(found.columns, found.values.T, strict=True))
    return ClippingReport(
        clients=len(found),
        rows=len(found.values),
        records=int(whole.sum()),
        most_records_of_a_client=int(of_clients.max()),
        clients_without_a_record=int((of_clients == 0).sum()),
        clients_over_the_bound=None if most is None else int((of_clients > most).sum()),
        columns=found.columns,
        missing={name: int(np.isnan(values).sum()) for name, values in columns.items()},
        outside_bounds={
            name: int(((values < bounds[name].lower) | (values > bounds[name].upper)).sum())
            for name, values in columns.items()
            if name in bounds
        },
    )
