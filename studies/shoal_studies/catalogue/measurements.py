"""Measurements read from a round's sum: the number of records, their centres, spreads, norms.

Learners use them to choose the next round, and to make the posterior.
"""

import math
from typing import Final, TypeVar

import numpy as np

from shoal_protocol.queries import (
    Counts,
    FirstMoments,
    GradientSum,
    NormCounts,
    SecondMomentMatrix,
    SecondMoments,
    Tables,
)
from shoal_protocol.queries.columns import LatticeQuery
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import in_units, largest_norms
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.posteriors.base import cut_normal_moments

SMALLEST_SPREAD: Final = 0.05
"""Of a column, relative to half its range."""


QueryT = TypeVar("QueryT", bound=LatticeQuery)


def query_of(released: ReleasedSum, kind: type[QueryT]) -> QueryT:
    """Return the query that a sum answers.

    Raises:
        ValueError: it is of another kind.
    """
    if not isinstance(released.query, kind):
        raise ValueError(f"the sum answers {released.query.name}, and another query is due")
    return released.query


def measured_means(released: ReleasedSum) -> Floats:
    """Return each column's mean, shape (m,), in the query's normalised units, within [-1, 1]."""
    query = query_of(released, FirstMoments)
    moments = in_units(query, released.values)[-1 - len(query.columns) : -1]
    return np.clip(moments / record_count(released), -1.0, 1.0)


def measured_spreads(released: ReleasedSum) -> Floats:
    """Return each column's root mean square about its centre, shape (m,), in data units."""
    query = query_of(released, SecondMoments)
    moments = in_units(query, released.values)[:-1]
    records = record_count(released)
    noise_sd = float(released.noise_sd[0]) / query.grid**2
    mean_squares = moments[-len(query.columns) :] / records
    # What noise alone could have made is not trusted to be a narrow column.
    floor = min(1.0, max(SMALLEST_SPREAD**2, 0.5 * noise_sd / records))
    half_ranges = np.array([column.scale for column in query.columns])
    return np.asarray(half_ranges * np.sqrt(np.clip(mean_squares, floor, 1.0)))


def measured_norm(released: ReleasedSum, level: float) -> float:
    """Return the norm that a part `level` of the rows keep to, in normalised units.

    It is one of the query's largest norms.
    """
    query = query_of(released, NormCounts)
    counts = in_units(query, released.values)[:-1]
    reached = np.cumsum(counts) >= level * record_count(released)
    return float(largest_norms(query)[np.argmax(reached) if np.any(reached) else -1])


def noisy_count(released: ReleasedSum) -> tuple[float, float]:
    """Return how many records went in, as the sum has it, and its noise's standard deviation.

    Where no ball shrinks it, the constant's moment in a matrix tells of them too: both are weighed
    by their noise.
    """
    query = released.query
    if isinstance(query, GradientSum):
        raise ValueError("a sum of gradients does not say of how many records it is")
    unit = float(query.grid if isinstance(query, Counts | Tables) else query.grid**2)
    seen, sd = float(released.values[-1]) / unit, float(released.noise_sd[-1]) / unit
    if not isinstance(query, SecondMomentMatrix):
        return seen, sd
    if query.constant and query.squared_norm_limit is None:
        whole = float(query.constant**2)
        constant, constant_sd = (
            float(each) / whole for each in (released.values[0], released.noise_sd[0])
        )
        share = constant_sd**2 / (constant_sd**2 + sd**2)
        seen, sd = share * seen + (1.0 - share) * constant, sd * math.sqrt(share)
    return seen, sd


def noise_ratio(released: ReleasedSum, *, part: float) -> float:
    """Return the noise of a round over its sensitivity, if an earlier one cost `part` of it.

    That is of coordinates of relative scale 1.
    """
    design = released.query.design(released.mechanism)
    ratio = float(released.noise_sd[0]) / (design.sensitivity * design.blocks[0].relative_scale)
    return ratio * (math.sqrt(part) if released.mechanism == "discrete_gaussian" else part)


def record_law(released: ReleasedSum) -> tuple[float, float]:
    """Return mean and standard deviation of how many records went in, given their noisy count.

    Every number from none to the most that the cohort may hold is as likely beforehand, and noise
    is taken for normal.
    """
    most = released.cohort_size * released.query.records_per_client
    seen, sd = noisy_count(released)
    centre = min(max(seen, -6.0 * sd), most + 6.0 * sd)
    ends = np.array([-centre / sd, (most - centre) / sd])
    shift, spread = (float(each) for each in cut_normal_moments(*ends))
    return min(max(centre + sd * shift, 0.0), float(most)), sd * math.sqrt(max(spread, 1e-12))


def record_count(released: ReleasedSum) -> int:
    """Return how many records went in, about: the mean of `record_law`, and one at least."""
    return max(1, round(record_law(released)[0]))
