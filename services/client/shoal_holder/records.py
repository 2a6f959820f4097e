"""The data holder's records, checked when they are loaded.

Errors name file, line and column, never a value: a message may end in a log. An empty cell is a
missing value; a client without any record has a row of them.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shoal_holder.tables import id_column_of, id_fault, number_of, open_table, positions
from shoal_protocol.wire.texts import canonical_text

FloatMatrix = NDArray[np.float64]


@dataclass(frozen=True)
class Identity:
    """Whose records these are, by personal ids, which are shown to nobody.

    `ids` are canonical and all different; `column` is the column of the source that they come from.
    Of one individual's rows at most `rows_per_record` count.
    """

    column: str
    ids: tuple[str, ...] = field(repr=False)
    rows_per_record: int


@dataclass(frozen=True)
class Records:
    """Numbers, shape (rows, columns), NaN where one is missing, and whose rows they are.

    `starts`, shape (clients + 1,): the client at position i has the rows from starts[i] up to
    starts[i + 1], and is the individual of the i-th id; order means nothing. Only one client alone
    may go without `identity`.
    """

    columns: tuple[str, ...]
    values: FloatMatrix = field(repr=False)
    starts: NDArray[np.int64] = field(repr=False)
    identity: Identity | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if len(set(self.columns)) != len(self.columns):
            raise ValueError("two columns have the same name")
        if self.values.ndim != 2 or self.values.shape[1] != len(self.columns):
            raise ValueError("values must have shape (rows, columns)")
        if np.isinf(self.values).any():
            raise ValueError("every value must be a finite number, or NaN where it is missing")
        if len(self) < 1 or self.starts[0] != 0 or self.starts[-1] != len(self.values):
            raise ValueError("starts must divide all rows among one or more clients")
        if (self.counts < 1).any():
            raise ValueError("every client must have a row")
        if self.identity and len(set(self.identity.ids)) != len(self):
            raise ValueError("every client must have an id of its own")
        if self.identity is None and len(self) > 1:
            raise ValueError("several rows without ids: add a column 'id', or name another")
        _ = self.empty  # worked out now: within an answer it would take the longer, the more rows

    def __len__(self) -> int:
        """Return the number of clients."""
        return len(self.starts) - 1

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Return how many rows each client has, shape (clients,)."""
        return np.diff(self.starts)

    @cached_property
    def missing(self) -> NDArray[np.bool_]:
        """Return which values are missing, shape (columns, rows): each column lies together."""
        return np.ascontiguousarray(np.isnan(self.values).T)

    @cached_property
    def empty(self) -> NDArray[np.bool_]:
        """Return which rows have no value in any column, shape (rows,)."""
        empty: NDArray[np.bool_] = np.all(self.missing, axis=0)
        return empty

    def places(self, columns: Sequence[str]) -> NDArray[np.intp]:
        """Return where these columns are, shape (len(columns),).

        Raises:
            ValueError: there is no such column.
        """
        return np.array(positions(self.columns, tuple(columns), "the records"), np.intp)

    def of(self, position: int, columns: Sequence[str]) -> FloatMatrix:
        """Return the rows at `position`, shape (r, len(columns)); none behind the last client's.

        Raises:
            ValueError: there is no such column.
        """
        if position >= len(self):
            return self.values[:0, self.places(columns)]
        rows = self.values[self.starts[position] : self.starts[position + 1]]
        return rows[:, self.places(columns)]

    @classmethod
    def from_file(
        cls,
        path: str | PathLike[str],
        columns: Sequence[str] | None = None,
        *,
        id_column: str | None = None,
    ) -> "Records":
        """Read a file of the kind that its name ends in: .csv, .parquet, or .npz by the loader.

        `columns` None takes all columns. The rows that have the same text in `id_column`, or
        without one in a column `id`, are one client's. A file that has neither holds one row. Empty
        cells and nulls are missing values.

        Raises:
            ValueError: the file cannot be used; the message names line or row, and column.
            OSError, ImportError: it cannot be read; Parquet files need the extra `parquet`.
        """
        file = Path(path)
        if file.suffix.lower() == ".npz" and id_column is None:
            from shoal_holder.typed_table import read_table  # which builds on this

            return read_table(file, columns)
        table = open_table(file)
        by = id_column_of(table.names, id_column, str(file))
        names = [each for each in table.names if each != by] if columns is None else list(columns)
        ids: list[str] = []
        numbers = array("d")
        rows = 0
        for place, texts in table.rows([*names, *([] if by is None else [by])]):
            rows += 1
            where = f"{file}, {table.unit} {place}, column"
            if by is not None:
                ids.append(texts[-1])
                if (fault := id_fault(ids[-1])) is not None:
                    raise ValueError(f"{where} {by!r}: {fault}")
            for name, text in zip(names, texts, strict=False):
                try:
                    numbers.append(number_of(text))
                except ValueError as error:
                    raise ValueError(f"{where} {name!r}: {error}") from None
        if not rows:
            raise ValueError(f"{file} holds no records")
        if by is None and rows > 1:
            raise ValueError(
                f"{file}: several rows without ids: add a column 'id', or name another"
            )
        values = np.array(numbers).reshape(rows, len(names))
        return _grouped(tuple(map(canonical_text, names)), values, by, ids)


def _grouped(
    columns: tuple[str, ...], values: FloatMatrix, id_column: str | None, ids: list[str]
) -> Records:
    """Return records by id; an individual's rows come by their values, so order means nothing."""
    if id_column is None:
        return Records(columns, values, np.arange(len(values) + 1))
    from shoal_holder.choice import MOST_ROWS  # which builds on this

    order: dict[str, int] = {}
    groups = np.array([order.setdefault(each, len(order)) for each in ids])
    starts = np.concatenate([[0], np.cumsum(np.bincount(groups))])
    values = values + 0.0  # −0.0 becomes 0.0: which of the two came first must not show
    kept = np.lexsort((*values.T[::-1], groups))
    return Records(columns, values[kept], starts, Identity(id_column, tuple(order), MOST_ROWS))
