"""Chooses which of a client's records count, in which order, by the holder's key alone.

A client takes part whatever its records are: with more than may count it gives as many as may,
with none that is usable it gives none.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_holder.records import Records
from shoal_protocol.wire.encoding import domain

MOST_ROWS: Final = 2000
"""Rows of one client that are kept, twice what any question takes: how long a choice among them
takes must not tell how many there are."""


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
    skipping: Sequence[int] | None = None,
    limit: int = MOST_ROWS,
    with_gaps: bool = False,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the records that count of the clients at `positions`, and which of them are there.

    Shapes (positions, most, m), zeros where there is none, and (positions, most). At position None,
    and behind the last client's, there are none. A client's records are its first `limit` rows that
    lack none of `columns`; `with_gaps` those that have a value in any column at all, with NaN where
    one is missing. The first `skipping` of them, by position, are left out.

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
    skipped = np.zeros(len(positions), np.int64) if skipping is None else np.asarray(skipping)
    ranks_given = ranks - np.repeat(skipped[filled], counts)
    kept = counting & (ranks < limit) & (ranks_given >= 0) & (ranks_given < most)
    here = np.repeat(filled, counts)[kept], ranks_given[kept]
    values[here], present[here] = records.values[rows[kept][:, None], where], True
    return values, present


def _order(rows: int, seed: bytes) -> NDArray[np.intp]:
    """Return the places of so many rows in the order of their pseudo-random numbers."""
    stream = hashlib.shake_256(domain("choice-of-records") + seed).digest(8 * rows)
    return np.argsort(np.frombuffer(stream, "<u8"), kind="stable")
