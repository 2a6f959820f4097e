"""Which queries a linear regression's rounds may ask.

The first round's query follows from the task and the population alone. A projection's second one
also depends on the first round's sum, and on thresholds, which the learner picks from a short
public list. Proofs and figures: docs/mathematics.md.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.errors import RefusedSpec
from shoal_protocol.queries import Column, Query, SecondMomentMatrix, SecondMoments
from shoal_protocol.questions.released import ReleasedSum
from shoal_protocol.tasks import LinearRegressionTask

_ASSUMED_SECOND_MOMENT: Final = 0.13  # of a normalised column: bounds about 2.8 deviations wide
_SMALLEST_SPREAD: Final = 0.05  # of a column, relative to half its range
_BOXES: Final = (1.5, 2.0, 2.5, 3.0, 4.0)  # in spreads
_SQUARED_NORMS: Final = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0)  # of the ball, relative to the mean row's
_TOLERANCE: Final = 1.1e-5  # a step of the sixth digit, to which another machine may round


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Box thresholds as multiples of the root mean square, and the ball's radius in box units."""

    features: float
    target: float
    radius: float


def thresholds_for(*, features: int, intercept: float) -> Iterator[Thresholds]:
    """Yield all thresholds that a projection may choose from."""
    for x_box, y_box, size in itertools.product(_BOXES, _BOXES, _SQUARED_NORMS):
        radius = math.sqrt(intercept**2 + size * (features / x_box**2 + 1.0 / y_box**2))
        yield Thresholds(features=x_box, target=y_box, radius=radius)


def first_query(task: LinearRegressionTask, population: int) -> Query:
    """Return the query of a task's first round, over this many clients."""
    kind = SecondMoments if task.projection else SecondMomentMatrix
    return kind(
        columns=tuple(bounds.column() for bounds in task.columns),
        intercept=task.intercept,
        radius=_radius(task, population),
        grid_bits=task.grid_bits,
        records_per_client=task.records_per_client,
    )


def second_query(
    task: LinearRegressionTask, chosen: Thresholds, spreads: Sequence[float]
) -> SecondMomentMatrix:
    """Return the query of a projection's second round; `spreads`, one per column, as measured."""
    factors = (*[chosen.features] * len(task.features), chosen.target)
    return SecondMomentMatrix(
        columns=tuple(
            Column(name=bounds.name, centre=bounds.centre, scale=_tidy(spread * factor))
            for bounds, spread, factor in zip(task.columns, spreads, factors, strict=True)
        ),
        intercept=task.intercept,
        radius=_tidy(chosen.radius),
        grid_bits=task.grid_bits,
        records_per_client=task.records_per_client,
    )


def measured_spreads(first: ReleasedSum) -> NDArray[np.float64]:
    """Return each column's root mean square about the middle of its bounds, in data units."""
    query = first.query
    if not isinstance(query, SecondMoments):
        raise ValueError("spreads are measured by second moments")
    moments = query.moments_from(first.values)
    records = record_count(query, int(first.values[0]), first.cohort_size)
    noise_sd = float(first.noise_sd[-1]) / query.grid**2
    mean_squares = moments[-len(query.columns) :] / records
    # What noise alone could have made is not trusted to be a narrow column.
    floor = min(1.0, max(_SMALLEST_SPREAD**2, 0.5 * noise_sd / records))
    half_ranges = np.array([column.scale for column in query.columns])
    spreads: NDArray[np.float64] = half_ranges * np.sqrt(np.clip(mean_squares, floor, 1.0))
    return spreads


def record_count(
    query: SecondMoments | SecondMomentMatrix, first_value: int, cohort_size: int
) -> int:
    """Return how many records went in: exact for one per client, else an estimate.

    The estimate is from the constant's second moment, of which shrinking is taken to cost a tenth;
    without a constant every client is taken to have the largest number allowed.
    """
    most = cohort_size * query.records_per_client
    if query.records_per_client == 1 or query.intercept == 0.0:
        return most
    estimate = first_value / (0.9 * math.floor(query.intercept * query.grid) ** 2)
    return round(min(max(estimate, cohort_size), most))


def check_query(
    query: Query,
    task: LinearRegressionTask,
    *,
    number: int,
    population: int,
    earlier: Sequence[ReleasedSum] | None,
) -> None:
    """Refuse a query of the name due that the task's round `number` does not ask otherwise.

    Columns, their centres, intercept, grid and records are the task's, in its order. In the first
    round scales and radius are too. In a projection's second round radius and scales are those of
    one of the public thresholds, for spreads that the first sum shows; who has not seen it, and
    passes None, allows any spread from .05 to 1 of half a column's range.

    Raises:
        RefusedSpec: the detail says why.
    """
    if not isinstance(query, SecondMoments | SecondMomentMatrix):
        raise RefusedSpec("a linear regression asks for moments only")
    if query.column_names != tuple(bounds.name for bounds in task.columns):
        raise RefusedSpec("the query's columns are not those of the job")
    if [column.centre for column in query.columns] != [bounds.centre for bounds in task.columns]:
        raise RefusedSpec("the query's columns are not centred as the job's bounds are")
    if (query.intercept, query.grid_bits) != (task.intercept, task.grid_bits):
        raise RefusedSpec("the query's intercept or grid is not the job's")
    halves = np.array([bounds.half_range for bounds in task.columns])
    scales = np.array([column.scale for column in query.columns])
    if number == 0:
        if not np.array_equal(scales, halves):
            raise RefusedSpec("the query's scales are not half the ranges of the job's bounds")
        if not _alike(query.radius, _radius(task, population)):
            raise RefusedSpec("the query's radius is not the one of the job")
        return
    if earlier is None:
        least, most = _SMALLEST_SPREAD * halves, halves
    else:
        least = most = measured_spreads(earlier[0])
    for chosen in thresholds_for(features=len(task.features), intercept=task.intercept):
        factors = np.array([chosen.features] * len(task.features) + [chosen.target])
        above = scales >= least * factors * (1.0 - _TOLERANCE)
        below = scales <= most * factors * (1.0 + _TOLERANCE)
        if _alike(query.radius, chosen.radius) and np.all(above & below):
            return
    raise RefusedSpec("the query's scales and radius follow from no measured spread")


def _alike(radius: float | None, expected: float) -> bool:
    return radius is not None and math.isclose(radius, expected, rel_tol=_TOLERANCE)


def _radius(task: LinearRegressionTask, population: int) -> float:
    """Return the task's radius, or one by the public rule.

    The rule assumes normalised columns with second moment .13. The fewer clients, the more
    noise matters and the more rows may be shrunk: the radius is the mean of the squared norm,
    plus 1.1 of its standard deviations for every factor of ten beyond 400 clients.
    """
    if task.radius is not None:
        return task.radius
    width = len(task.columns)
    deviations = 1.1 * math.log10(max(1.0, population / 400.0))
    squared_norm = _ASSUMED_SECOND_MOMENT * (width + deviations * math.sqrt(2.0 * width))
    return _tidy(math.sqrt(task.intercept**2 + squared_norm))


def _tidy(value: float) -> float:
    """Round to six digits, so that a published query is readable."""
    return float(f"{value:.6g}")
