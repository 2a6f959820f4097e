"""Decodes a released sum into the units of its query: moments, matrices, counts, gradients.

`values` are the sum that a round released, shape (dimension,); noise is in them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.columns import LatticeQuery
from shoal_protocol.queries.moments import MomentMatrix, NormCounts
from shoal_protocol.queries.scores import (
    HazardScoreSum,
    ScoreSum,
)
from shoal_protocol.queries.tables import Tables

Values = NDArray[np.int64] | NDArray[np.float64]


def in_units(query: LatticeQuery, values: Values) -> NDArray[np.float64]:
    """Return a released sum in the units of its query, shape (dimension,): records, moments, ...

    `values` may also be the noise's standard deviations.

    Raises:
        ValueError: `values` has another length.
    """
    if values.shape != (query.dimension,):
        raise ValueError(f"expected a vector of {query.dimension} coordinates")
    return np.asarray(values / float(query.unit))


@dataclass(frozen=True)
class Scores:
    """Sums of scores w and of their squares, shapes (p,), and how many residuals were cut."""

    scores: NDArray[np.float64]
    squares: NDArray[np.float64]
    cut: float


def scores_from(query: ScoreSum, values: NDArray[np.float64]) -> Scores:
    """Return what a round of scores released, in units of the largest that there is.

    `values`, shape (dimension,), may also be the noise's standard deviations.

    Raises:
        ValueError: `values` has another length.
    """
    scaled, width = in_units(query, values), query.width
    return Scores(scaled[:width], scaled[width : 2 * width], float(scaled[-2]))


@dataclass(frozen=True)
class HazardScores:
    """Sums of events and hazards in each interval, (J,), of scores and of their squares, (q,)."""

    events: NDArray[np.float64]
    hazards: NDArray[np.float64]
    scores: NDArray[np.float64]
    squares: NDArray[np.float64]


def hazards_from(query: HazardScoreSum, values: NDArray[np.float64]) -> HazardScores:
    """Return what a round of hazards released, in units of the longest row.

    `values`, shape (dimension,), may also be the noise's standard deviations.

    Raises:
        ValueError: `values` has another length.
    """
    scaled, places = in_units(query, values), query.intervals
    ends = [places, 2 * places, query.width, query.dimension - 1]
    return HazardScores(*np.split(scaled, ends)[:-1])


def matrix_from(query: MomentMatrix, values: Values) -> NDArray[np.float64]:
    """Return a symmetric matrix, shape (p, p), in normalised units.

    Coordinates are ordered (intercept if there is one, then the columns). Noise may have
    made the matrix indefinite.

    Raises:
        ValueError: `values` has another length.
    """
    scaled = in_units(query, values)[:-1]
    matrix = np.zeros((query.width, query.width))
    matrix[np.triu_indices(query.width, 1)] = scaled[query.width :]
    matrix += matrix.T
    matrix[np.diag_indices(query.width)] = scaled[: query.width]
    return matrix


def tables_from(query: Tables, values: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return the noisy cells of each table, in records, the last of each what is missing.

    `values`, shape (dimension,), may also be the noise's standard deviations.

    Raises:
        ValueError: `values` has another length.
    """
    return np.split(in_units(query, values)[:-1], np.cumsum(query.sizes)[:-1])


def largest_norms(query: NormCounts) -> NDArray[np.float64]:
    """Return the largest norm of each bin, shape (27,), in normalised units."""
    return np.sqrt(query.largest_squares()) / float(query.grid)
