"""Which queries a linear regression's rounds may ask.

A round's query follows from the task, the population and the sums of the rounds before it; a
projection's last one also depends on thresholds, which the learner picks from a short public list.
Proofs and figures: docs/mathematics.md.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.jobs.terms import AS_STATED, TOLERANCE, Range, RoundTerms
from shoal_protocol.queries import (
    Column,
    FirstMoments,
    Moments,
    NormCounts,
    Query,
    QueryName,
    SecondMomentMatrix,
    SecondMoments,
)
from shoal_protocol.queries.sums import largest_norms
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.measurements import (
    SMALLEST_SPREAD,
    measured_means,
    measured_norm,
    measured_spreads,
    record_count,
)
from shoal_protocol.wire.errors import RefusedSpec

if TYPE_CHECKING:
    from shoal_protocol.studies.linear_regression import LinearRegressionTask

_ASSUMED_SECOND_MOMENT: Final = 0.13  # of a normalised column: bounds about 2.8 deviations wide
_UNIFORM_SECOND_MOMENT: Final = 1.0 / 3.0  # of a column that fills its bounds evenly
_BOXES: Final = (1.5, 2.0, 2.5, 3.0, 4.0)  # in spreads
_SQUARED_NORMS: Final = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0)  # of the ball, relative to the mean row's

_Moments = FirstMoments | SecondMoments | SecondMomentMatrix | NormCounts

_KINDS: Final[dict[QueryName, type[_Moments]]] = {
    "first_moments": FirstMoments,
    "second_moments": SecondMoments,
    "norm_counts": NormCounts,
    "second_moment_matrix": SecondMomentMatrix,
}


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Box thresholds as multiples of the spreads; the ball's radius in box units, None without."""

    features: float
    target: float
    radius: float | None


def thresholds_for(task: "LinearRegressionTask") -> Iterator[Thresholds]:
    """Yield all thresholds that the task's projection may choose from."""
    for x_box, y_box in itertools.product(_BOXES, _BOXES):
        if task.method == "box_projection":
            yield Thresholds(features=x_box, target=y_box, radius=None)
            continue
        mean_square = len(task.features) / x_box**2 + 1.0 / y_box**2
        for size in _SQUARED_NORMS:
            radius = math.sqrt(task.intercept**2 + size * mean_square)
            yield Thresholds(features=x_box, target=y_box, radius=radius)


def query_for(
    task: "LinearRegressionTask",
    population: int,
    earlier: Sequence[ReleasedSum],
    chosen: Thresholds | None = None,
) -> Query:
    """Return the query of the round after `earlier`; a projection's last one needs `chosen`.

    Raises:
        ValueError: there is no such round, or `chosen` is missing.
    """
    number = len(earlier)
    if number >= task.rounds:
        raise ValueError("the task has no further round")
    name = task.query_name(number)
    centres, scales, radius = _centres(task, earlier), np.array(task.scales), None
    match name:
        case "second_moment_matrix" if task.projects:
            if chosen is None:
                raise ValueError("a projection's last round needs thresholds")
            scales = measured_spreads(earlier[-1]) * _factors(task, chosen)
            scales = np.array([_tidy(scale) for scale in scales])
            radius = None if chosen.radius is None else _tidy(chosen.radius)
        case "norm_counts":
            pass
        case _:
            radius = _radius(task, name, population, earlier)
    return _query(task, name, centres=centres.tolist(), scales=scales.tolist(), radius=radius)


def check_query(
    query: Query,
    task: "LinearRegressionTask",
    *,
    number: int,
    population: int,
    earlier: Sequence[ReleasedSum],
) -> None:
    """Refuse a query of the name due that the task's round `number` does not ask otherwise.

    Columns, intercept, grid and records are the task's, in its order. So are centres, scales and
    radius, or else they follow from the sums of `earlier` rounds, and, in a projection's last
    round, from one of the public thresholds.

    Raises:
        RefusedSpec: the detail says why.
    """
    if not isinstance(query, Moments):
        raise RefusedSpec("a linear regression asks for moments and counts only")
    due = [(bounds.name, bounds.term) for bounds in task.columns]
    if [(column.name, column.term) for column in query.columns] != due:
        raise RefusedSpec("the query's columns are not those of the job")
    if (query.intercept, query.grid_bits) != (_intercept(task, query.name), task.grid_bits):
        raise RefusedSpec("the query's intercept or grid is not the job's")
    _check_centres(query, task, earlier)
    last = number == task.rounds - 1
    if last and task.projects:
        _check_projection(query, task, earlier)
        return
    if tuple(column.scale for column in query.columns) != task.scales:
        raise RefusedSpec("the query's scales are not half the ranges of the job's bounds")
    radius = None
    if query.name != "norm_counts":
        radius = _radius(task, query.name, population, earlier)
    if not _alike(query.radius, radius):
        raise RefusedSpec("the query's radius is not the one of the job")


def _check_centres(
    query: Moments, task: "LinearRegressionTask", earlier: Sequence[ReleasedSum]
) -> None:
    centres = np.array([column.centre for column in query.columns])
    if np.any(np.abs(centres - _centres(task, earlier)) > TOLERANCE * _halves(task)):
        raise RefusedSpec("the query's columns are not centred as the job's bounds or means are")


def _check_projection(
    query: Moments, task: "LinearRegressionTask", earlier: Sequence[ReleasedSum]
) -> None:
    spreads = measured_spreads(earlier[-1])
    scales = np.array([column.scale for column in query.columns])
    for chosen in thresholds_for(task):
        factors = _factors(task, chosen)
        fits = np.abs(scales / (spreads * factors) - 1.0) <= TOLERANCE
        if _alike(query.radius, chosen.radius) and np.all(fits):
            return
    raise RefusedSpec("the query's scales and radius follow from no measured spread")


def _centres(task: "LinearRegressionTask", earlier: Sequence[ReleasedSum]) -> NDArray[np.float64]:
    centres = np.array([bounds.centre for bounds in task.columns])
    if task.centring == "private" and earlier:
        centres = centres + _halves(task) * measured_means(earlier[0])
    return centres


def _halves(task: "LinearRegressionTask") -> NDArray[np.float64]:
    return np.array([bounds.half_range for bounds in task.columns])


def _factors(task: "LinearRegressionTask", chosen: Thresholds) -> NDArray[np.float64]:
    return np.array([chosen.features] * len(task.features) + [chosen.target])


def _intercept(task: "LinearRegressionTask", name: QueryName) -> float:
    """Return the constant coordinate; counts of norms do without, for it is the same in all."""
    return 0.0 if name == "norm_counts" else task.intercept


def _radius(
    task: "LinearRegressionTask",
    name: QueryName,
    population: int,
    earlier: Sequence[ReleasedSum],
) -> float:
    """Return the radius of a round's ball."""
    if name == "second_moment_matrix" and task.method == "norm_ball":
        return _around(task, measured_norm(earlier[-1], kept_whole(record_count(earlier[-1]))))
    return _radius_of_task(task, name, population)


def _around(task: "LinearRegressionTask", norm: float) -> float:
    """Return the radius of the ball that holds rows whose columns have this norm."""
    return _tidy(math.sqrt(task.intercept**2 + norm**2))


def _radius_of_task(task: "LinearRegressionTask", name: QueryName, population: int) -> float:
    """Return the radius of a round's ball that follows from no earlier sum."""
    if task.radius is not None:
        return task.radius
    if name == "first_moments":
        return _around(task, math.sqrt(_UNIFORM_SECOND_MOMENT * len(task.columns)))
    return _radius_by_rule(task, population)


def kinds_of_rounds(
    task: "LinearRegressionTask", *, least: int, most: int
) -> tuple[RoundTerms, ...]:
    """Return the terms of each round, whatever the sums of those before turn out to be.

    With `least` to `most` clients. A projection's spreads are from .05 to 1 of half a range.
    """
    return tuple(_kind(task, number, least, most) for number in range(task.rounds))


def _kind(task: "LinearRegressionTask", number: int, least: int, most: int) -> RoundTerms:
    name, stretch = task.query_name(number), AS_STATED
    radii: list[float] = []
    if name == "second_moment_matrix" and task.projects:
        boxes = [SMALLEST_SPREAD * min(_BOXES), max(_BOXES)]
        stretch = Range(least=boxes[0], most=boxes[1])
        radii = [each.radius for each in thresholds_for(task) if each.radius is not None]
    elif name == "second_moment_matrix" and task.method == "norm_ball":
        radii = [_around(task, norm) for norm in largest_norms(_counting(task)).tolist()]
    elif name != "norm_counts":
        radii = [_radius_of_task(task, name, population) for population in (least, most)]
    query = _query(
        task,
        name,
        centres=[bounds.centre for bounds in task.columns],
        scales=task.scales,
        radius=min(radii, default=None),
    )
    return RoundTerms(
        rounds=1,
        query=query,
        recentred=task.centring == "private" and number > 0,
        stretch=stretch,
        radius=Range(least=min(radii), most=max(radii)) if radii else None,
    )


def _query(
    task: "LinearRegressionTask",
    name: QueryName,
    *,
    centres: Sequence[float],
    scales: Sequence[float],
    radius: float | None,
) -> _Moments:
    return _KINDS[name](
        columns=tuple(
            Column(name=bounds.name, centre=centre, scale=scale, term=bounds.term)
            for bounds, centre, scale in zip(task.columns, centres, scales, strict=True)
        ),
        intercept=_intercept(task, name),
        radius=radius,
        grid_bits=task.grid_bits,
        records_per_client=task.records_per_client,
    )


def _counting(task: "LinearRegressionTask") -> NormCounts:
    return NormCounts(
        columns=tuple(bounds.column() for bounds in task.columns),
        intercept=0.0,
        radius=None,
        grid_bits=task.grid_bits,
        records_per_client=task.records_per_client,
    )


def _radius_by_rule(task: "LinearRegressionTask", population: int) -> float:
    """Return a radius for columns of which the rule assumes that their second moment is .13."""
    width = len(task.columns)
    deviations = _deviations(population)
    squared_norm = _ASSUMED_SECOND_MOMENT * (width + deviations * math.sqrt(2.0 * width))
    return _tidy(math.sqrt(task.intercept**2 + squared_norm))


def kept_whole(records: int) -> float:
    """Return what part of the rows a measured ball leaves as they are: .76 of 400 rows."""
    return NormalDist().cdf(_deviations(records) + 0.7)


def _deviations(records: int) -> float:
    """Return how many standard deviations from the mean squared norm a ball reaches.

    The fewer records, the more noise matters and the more rows may be shrunk: 1.1 for every factor
    of ten beyond 400 records.
    """
    return 1.1 * math.log10(max(1.0, records / 400.0))


def _alike(radius: float | None, expected: float | None) -> bool:
    if radius is None or expected is None:
        return radius is expected
    return math.isclose(radius, expected, rel_tol=TOLERANCE)


def _tidy(value: float) -> float:
    """Round to six digits, so that a published query is readable."""
    return float(f"{value:.6g}")
