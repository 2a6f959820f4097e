"""Which queries a piecewise exponential regression may ask; ranges as of other regressions."""

import math
from typing import TYPE_CHECKING, Final

from shoal_protocol.jobs.terms import AS_STATED, Range, RoundTerms
from shoal_protocol.queries import Column, HazardScoreSum, Query, QueryName, WeightedRowMatrix
from shoal_protocol.studies.regression import round_rules as rules

if TYPE_CHECKING:
    from shoal_protocol.studies.piecewise_exponential import PiecewiseExponentialTask

SCORES: Final[tuple[QueryName, ...]] = ("hazard_score_sum",) * 3
ASKED: Final[tuple[QueryName, ...]] = ("column_moments", "weighted_row_matrix", *SCORES)

_ASIDE: Final = 1024.0  # half ranges: a column so wide is 0 in a row
_LONG: Final = 3.0  # squared norm of features that is not shrunk, over the number of them
_LONGEST: Final = 330.0  # of whole rows: as `weighted_rows` has it


def moments_query(
    task: "PiecewiseExponentialTask", features: tuple[Column, ...], centre: float
) -> WeightedRowMatrix:
    """Return the query for moments of features, and of the event about its `centre`.

    The time's part in a row is nothing.
    """
    *_, time, event = (each.column() for each in task.columns)
    aside = time.model_copy(update={"scale": _ASIDE * time.scale})
    about = event.model_copy(update={"centre": centre, "scale": 1.0})
    return rules.unweighted_moments_query(task, (*features, aside, about), squared_radius(task))


def squared_radius(task: "PiecewiseExponentialTask") -> float:
    """Return the squared radius of constant and features, in spreads.

    It is wider than of other regressions: hazards are seldom linear in rows far out.
    """
    return min(1.0 + _LONG * len(task.features), _LONGEST)


def score_query(
    task: "PiecewiseExponentialTask",
    features: tuple[Column, ...],
    *,
    point: tuple[float, ...],
    hazard_cut: float,
) -> HazardScoreSum:
    """Return the query at `point`: log hazards at the centres, then coefficients, in spreads.

    Times are told apart beyond the last edge, too: there events are left out.
    """
    places = len(task.times) - 1
    time, event = (each.column() for each in task.columns[-2:])
    wide = time.model_copy(update={"centre": task.time.upper, "scale": 2.0 * time.scale})
    return HazardScoreSum(
        columns=(*features, wide, event),
        intercept=rules.CONSTANT,
        radius=math.sqrt(squared_radius(task)) / rules.REACH,
        grid_bits=rules.GRID_BITS,
        records_per_client=task.records_per_client,
        edges=task.times,
        point=(*point[:places], *(rules.REACH * each for each in point[places:])),
        hazard_cut=hazard_cut,
    )


def kinds_of_rounds(task: "PiecewiseExponentialTask") -> tuple[RoundTerms, ...]:
    """Return the terms of each kind of round, whatever the sums of those before turn out to be.

    Raises:
        ValueError: no query asks what the task does.
    """
    features = tuple(each.column() for each in task.features)
    zero = (0.0,) * (len(task.times) - 1 + len(features))
    return (
        _kind(rules.first_query(task), 1, AS_STATED),
        _kind(moments_query(task, features, 0.5), 1),
        _kind(score_query(task, features, point=zero, hazard_cut=1.0), len(SCORES)),
    )


def _kind(query: Query, rounds: int, stretch: Range | None = None) -> RoundTerms:
    radius: float | None = getattr(query, "radius", None)
    return RoundTerms(
        rounds=rounds,
        query=query,
        recentred=stretch is None,
        stretch=stretch or Range(least=rules.SMALLEST_SPREAD, most=rules.REACH),
        radius=None if radius is None else Range(least=radius, most=radius),
    )
