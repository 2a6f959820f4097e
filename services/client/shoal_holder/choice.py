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


def chosen_records(
    rows: NDArray[np.float64], where: NDArray[np.intp], *, most: int, with_gaps: bool
) -> NDArray[np.float64]:
    """Return of a client's `rows`, shape (r, columns), the columns `where` of the first that count.

    Shape (at most `most`, len(where)).
    """
    chosen: NDArray[np.float64] = rows[that_count(rows, where, with_gaps=with_gaps)][:most, where]
    return chosen


def that_count(
    rows: NDArray[np.float64], where: NDArray[np.intp], *, with_gaps: bool
) -> NDArray[np.bool_]:
    """Tell which of `rows`, shape (r, columns), are records, shape (r,).

    They lack none of the columns `where`; `with_gaps` they may, and have some value at all.
    """
    there = ~np.isnan(rows)
    counts: NDArray[np.bool_]
    counts = np.any(there, axis=1) if with_gaps else np.all(there[:, where], axis=1)
    return counts


def _order(rows: int, seed: bytes) -> NDArray[np.intp]:
    """Return the places of so many rows in the order of their pseudo-random numbers."""
    stream = hashlib.shake_256(domain("choice-of-records") + seed).digest(8 * rows)
    return np.argsort(np.frombuffer(stream, "<u8"), kind="stable")
