"""The data holder's records: numbers, whose rows they are, and which are missing.

A client without any record has a row of missing values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shoal_holder.tables import positions

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
