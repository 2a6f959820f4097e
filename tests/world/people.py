"""Records of people with made-up ids, for tests in which it does not matter who has which slot."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shoal_holder.records import MOST_ROWS, Identity, Records


def csv_of(records: Records) -> str:
    """Return people's records, a row each, as a file that an agent reads."""
    assert records.identity is not None
    rows = zip(records.identity.ids, records.values.tolist(), strict=True)
    lines = [("id", *records.columns), *((name, *map(repr, row)) for name, row in rows)]
    return "".join(",".join(line) + "\n" for line in lines)


def people(
    columns: Sequence[str], values: NDArray[np.float64], starts: Sequence[int] | None = None
) -> Records:
    """Return records, one row each or from `starts[i]` up to `starts[i + 1]`, each with an id."""
    rows = np.arange(len(values) + 1) if starts is None else np.asarray(starts)
    ids = tuple(f"person-{number}" for number in range(len(rows) - 1))
    return Records(tuple(columns), values, rows, Identity("id", ids, MOST_ROWS))


def rows_at(records: Records, position: int, columns: Sequence[str]) -> NDArray[np.float64]:
    """Return the rows at a position, shape (r, len(columns)); none behind the last client's."""
    if position >= len(records):
        return records.values[:0, records.places(columns)]
    rows = records.values[records.starts[position] : records.starts[position + 1]]
    return rows[:, records.places(columns)]
