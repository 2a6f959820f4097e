"""The data holder's records: numbers, whose rows they are, which are missing, and which count.

A client without any record has a row of missing values.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_holder.tables import positions
from shoal_protocol.wire.encoding import domain

FloatMatrix = NDArray[np.float64]

MOST_ROWS: Final = 2000
"""Rows of one client that are kept, twice what any question takes: how long a choice among them
takes must not tell how many there are."""


@dataclass(frozen=True)
class Identity:
    """Whose records these are, by personal ids, which are shown to nobody.

    `ids` are canonical and all different; `column` is the column of the source that they come from.
    Of one individual's rows at most `rows_per_record` count.
    """

    column: str
    ids: tuple[str, ...] = field(repr=False)
    rows_per_record: int


ALONE: Final = Identity(column="", ids=("",), rows_per_record=1)
"""Whose a record is that comes without an id: no other one is here."""


@dataclass(frozen=True)
class Records:
    """Numbers, shape (rows, columns), NaN where one is missing, and whose rows they are.

    `starts`, shape (clients + 1,): the client at position i has the rows from starts[i] up to
    starts[i + 1], and is the individual of the i-th id; order means nothing.
    """

    columns: tuple[str, ...]
    values: FloatMatrix = field(repr=False)
    starts: NDArray[np.int64] = field(repr=False)
    identity: Identity = field(default=ALONE, repr=False)

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
        if len(set(self.identity.ids)) != len(self):
            raise ValueError("every client must have an id of its own")
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


def grouped(
    ids: Sequence[str], values: FloatMatrix
) -> tuple[tuple[str, ...], NDArray[np.int64], FloatMatrix]:
    """Return ids in order, where the rows of each start, and the rows: those of one id by values.

    So neither the order of individuals nor that of their rows means anything.
    """
    names = sorted(set(ids))
    places = {name: place for place, name in enumerate(names)}
    groups = np.array([places[each] for each in ids])
    values = values + 0.0  # −0.0 becomes 0.0: which of the two came first must not show
    starts = np.concatenate([[0], np.cumsum(np.bincount(groups))])
    return tuple(names), starts, values[np.lexsort((*values.T[::-1], groups))]


# Which of a client's records count, and in which order, follows from its id's keyed digest alone. A
# client takes part whatever its records are: with more than may count it gives as many as may, with
# none that is usable it gives none.


def in_chosen_order(records: Records, seeds: Sequence[bytes]) -> Records:
    """Return records with each client's rows in the order of its seed, `MOST_ROWS` at most.

    Rows come in the order of a pseudo-random number for each place, which follows from the client's
    seed alone. So every query of the same columns gets the same records, a larger bound only adds
    some, and one row more or less displaces one other at most.
    """
    if not (records.counts > 1).any():
        return records
    kept = [
        start + (_order(int(count), seed)[:MOST_ROWS] if count > 1 else np.zeros(1, np.intp))
        for start, count, seed in zip(records.starts, records.counts, seeds, strict=False)
    ]
    starts = np.concatenate([[0], np.cumsum([len(each) for each in kept])])
    return replace(records, values=records.values[np.concatenate(kept)], starts=starts)


def chosen_together(
    records: Records,
    positions: Sequence[int | None],
    columns: Sequence[str],
    *,
    most: int,
    with_gaps: bool = False,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the records that count of the clients at `positions`, and which of them are there.

    Shapes (positions, most, m), zeros where there is none, and (positions, most). At position None,
    and behind the last client's, there are none. A client's records are its first rows that lack
    none of `columns`, as many as count; `with_gaps` those that have a value in any column at all,
    with NaN where one is missing.

    Of the table only `columns` are read, and of them only the values that are returned: the time it
    takes is covered by `release_timing.encoding_seconds`, which knows nothing else.

    Raises:
        ValueError: there is no such column.
    """
    where = records.places(columns)
    values = np.zeros((len(positions), most, len(where)))
    present = np.zeros((len(positions), most), np.bool_)
    places = np.array([len(records) if each is None else each for each in positions], np.intp)
    filled = np.flatnonzero(places < len(records))
    counts = records.counts[places[filled]]
    before = np.cumsum(counts) - counts  # how many rows the clients before have
    rows = np.arange(counts.sum()) + np.repeat(records.starts[places[filled]] - before, counts)
    if with_gaps:
        counting = ~records.empty[rows]
    else:
        counting = np.ones(len(rows), np.bool_)
        for column in where:
            counting &= ~records.missing[column].take(rows)
    so_far = np.concatenate([[0], np.cumsum(counting)])
    ranks = so_far[:-1] - np.repeat(so_far[before], counts)
    kept = counting & (ranks < min(records.identity.rows_per_record, most))
    here = np.repeat(filled, counts)[kept], ranks[kept]
    values[here], present[here] = records.values[rows[kept][:, None], where], True
    return values, present


def _order(rows: int, seed: bytes) -> NDArray[np.intp]:
    """Return the places of so many rows in the order of their pseudo-random numbers."""
    stream = hashlib.shake_256(domain("choice-of-records") + seed).digest(8 * rows)
    return np.argsort(np.frombuffer(stream, "<u8"), kind="stable")
