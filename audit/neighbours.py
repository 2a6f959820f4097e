"""The worst replacement of one client's records for each query."""

import math

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries import (
    ColumnMoments,
    Counts,
    EdgeCut,
    FirstMoments,
    Query,
    SecondMoments,
    Tables,
)

Floats = NDArray[np.float64]


def worst_neighbours(query: Query) -> tuple[Floats, Floats]:
    """Return two clients' records, each of shape (records, m), as far apart as can be.

    They are corners of the box, or one and no record at all, or orthogonal rows of the ball:
    docs/mathematics.md, section 2, says which bounds are reached. `audit.game` plays no pair that
    does not reach its bound.
    """
    if isinstance(query, Counts):
        values = query.cut.edges if isinstance(query.cut, EdgeCut) else query.cut.levels
        away = np.nextafter(max(values), np.inf)  # in the last cell, which holds other levels
        ones = np.ones((query.records_per_client, 1))
        return ones * values[0], ones * away
    if isinstance(query, Tables):  # all that is missing against something in each table
        there = np.zeros((query.records_per_client, len(query.columns)))
        return np.full_like(there, np.nan), there
    columns = len(query.column_names)
    one, other = np.zeros(columns), np.zeros(columns)
    if query.squared_norm_limit is not None:
        length = math.isqrt(query.squared_norm_limit) / query.grid
        one[0] = length
        other[1:2] = length
    elif isinstance(query, FirstMoments | ColumnMoments):
        one[:], other[:] = 1.0, -1.0
    elif isinstance(query, SecondMoments) or columns == 1:
        one[:] = 1.0
        return _records(query, one), np.empty((0, columns))
    else:
        one[:], other[:] = 1.0, 1.0
        other[: columns // 2] = -1.0
    return _records(query, one), _records(query, other)


def _records(query: Query, unit: Floats) -> Floats:
    centres = np.array([column.centre for column in query.columns])
    scales = np.array([column.scale for column in query.columns])
    return np.tile(centres + scales * unit, (query.records_per_client, 1))
