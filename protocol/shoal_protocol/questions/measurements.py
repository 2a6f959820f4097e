"""What a linear regression's early rounds measured: centres, spreads, lengths; knows no task.

Whoever has seen a round's sum gets the same numbers from it: the learner that asks the next round,
and a certificate's reader who checks that question.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries import (
    FirstMoments,
    NormCounts,
    SecondMomentMatrix,
    SecondMoments,
    UnitRowMatrix,
)
from shoal_protocol.questions.released import ReleasedSum

Floats = NDArray[np.float64]

SMALLEST_SPREAD: Final = 0.05
"""Of a column, relative to half its range."""


def measured_means(released: ReleasedSum) -> Floats:
    """Return each column's mean, shape (m,), in the query's normalised units, within [-1, 1]."""
    query = released.query
    if not isinstance(query, FirstMoments):
        raise ValueError("means are measured by first moments")
    moments = query.moments_from(released.values)[-len(query.columns) :]
    return np.clip(moments / record_count(released), -1.0, 1.0)


def measured_spreads(released: ReleasedSum) -> Floats:
    """Return each column's root mean square about its centre, shape (m,), in data units."""
    query = released.query
    if not isinstance(query, SecondMoments):
        raise ValueError("spreads are measured by second moments")
    moments = query.moments_from(released.values)
    records = record_count(released)
    noise_sd = float(released.noise_sd[-1]) / query.grid**2
    mean_squares = moments[-len(query.columns) :] / records
    # What noise alone could have made is not trusted to be a narrow column.
    floor = min(1.0, max(SMALLEST_SPREAD**2, 0.5 * noise_sd / records))
    half_ranges = np.array([column.scale for column in query.columns])
    spreads: Floats = half_ranges * np.sqrt(np.clip(mean_squares, floor, 1.0))
    return spreads


def measured_norm(released: ReleasedSum, level: float) -> float:
    """Return the norm that a part `level` of the rows keep to, in normalised units.

    It is one of the query's largest norms.
    """
    query = released.query
    if not isinstance(query, NormCounts):
        raise ValueError("norms are measured by norm counts")
    counts = query.counts_from(released.values)
    reached = np.cumsum(counts) >= level * record_count(released)
    return float(query.largest_norms()[np.argmax(reached) if np.any(reached) else -1])


def record_count(released: ReleasedSum) -> int:
    """Return how many records went in: exact for one per client, else an estimate.

    Norm counts add up to it. Otherwise it comes from the constant's moment, of which shrinking is
    taken to cost a tenth (a twentieth of a first moment); without a constant every client is taken
    to have the largest number allowed.
    """
    query = released.query
    most = released.cohort_size * query.records_per_client
    if query.records_per_client == 1:
        return most
    first = int(released.values[0])
    match query:
        case NormCounts():
            estimate = float(query.counts_from(released.values).sum())
        case FirstMoments() if query.constant:
            estimate = first / (0.95 * query.constant * query.grid)
        case SecondMoments() | SecondMomentMatrix() | UnitRowMatrix() if query.constant:
            estimate = first / (0.9 * query.constant**2)
        case _:
            return most
    return round(min(max(estimate, released.cohort_size), most))
