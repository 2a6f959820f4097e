"""Which queries a regression in measured units may ask.

Centres, spreads, the radius of a linear model, and the points of scores are the learner's, from
what earlier rounds released: whatever they are, a record loses no more than the round costs. They
are in the ranges of the terms.
"""

import math
from typing import TYPE_CHECKING, Any, Final, Protocol

from shoal_protocol.jobs.terms import AS_STATED, Range, RoundTerms
from shoal_protocol.queries import (
    Column,
    ColumnMoments,
    FirstMoments,
    NormCounts,
    Query,
    QueryName,
    ScoreSum,
    SecondMoments,
    WeightedRowMatrix,
)
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.scores import Family
from shoal_protocol.queries.sums import largest_norms
from shoal_protocol.queries.weighted_rows import LARGEST_RADIUS, TARGET_PART

if TYPE_CHECKING:
    from shoal_protocol.studies.regression import RegressionTask

LINEAR: Final[tuple[QueryName, ...]] = ("column_moments", "norm_counts", "weighted_row_matrix")
PREDICTING: Final[tuple[QueryName, ...]] = (
    "first_moments",
    "norm_counts",
    "second_moments",
    "weighted_row_matrix",
)
SCORES: Final[tuple[QueryName, ...]] = ("score_sum", "score_sum", "score_sum")
GENERALISED: Final[tuple[QueryName, ...]] = ("column_moments", "weighted_row_matrix", *SCORES)

REACH: Final = 16.0
"""Spreads that a feature reaches to each side before its values are cut."""
CONSTANT: Final = 1.0 / REACH
"""The constant coordinate: as large as one spread."""
SMALLEST_SPREAD: Final = 0.02
"""Of a column, over half its bounds' range."""
GRID_BITS: Final = 15
LONG: Final = 1.3
"""Squared norm of features that is not shrunk, over the number of them: but of linear models."""

_ASIDE: Final = 1024.0  # half ranges: a column so wide is 0 in a norm
_SHORT: Final = 0.35  # squared norm of a row whose centre is measured, over the number of columns


class WithFeatures(Protocol):
    """A task about features, other columns after them, and how many records a client may hold."""

    @property
    def features(self) -> tuple[ColumnBounds, ...]: ...
    @property
    def columns(self) -> tuple[ColumnBounds, ...]: ...
    @property
    def records_per_client(self) -> int: ...


def first_query(task: WithFeatures) -> ColumnMoments:
    """Return the query that measures all columns."""
    return ColumnMoments(
        columns=tuple(bounds.column() for bounds in task.columns),
        intercept=0.0,
        radius=None,
        grid_bits=GRID_BITS,
        records_per_client=task.records_per_client,
    )


def norm_query(task: "RegressionTask", features: tuple[Column, ...]) -> NormCounts:
    """Return the query that counts rows by their features' norm; other columns' part is nothing."""
    others = [each.column() for each in task.columns[len(task.features) :]]
    return NormCounts(
        columns=(
            *features,
            *(each.model_copy(update={"scale": _ASIDE * each.scale}) for each in others),
        ),
        intercept=0.0,
        radius=None,
        grid_bits=GRID_BITS,
        records_per_client=task.records_per_client,
    )


def centre_query(task: "RegressionTask") -> FirstMoments:
    """Return the query for centres, to predict: rows within a ball about the bounds' middles."""
    columns = tuple(bounds.column() for bounds in task.columns)
    radius = math.sqrt(_SHORT * len(columns))
    return FirstMoments(**_parts(task, columns), radius=radius)


def length_query(task: "RegressionTask", columns: tuple[Column, ...]) -> NormCounts:
    """Return the query that counts rows by their norm in half ranges, to predict."""
    return NormCounts(**_parts(task, columns), radius=None)


def spread_query(
    task: "RegressionTask", columns: tuple[Column, ...], radius: float
) -> SecondMoments:
    """Return the query for spreads within a ball, to predict."""
    return SecondMoments(**_parts(task, columns), radius=radius)


def _parts(task: "RegressionTask", columns: tuple[Column, ...]) -> dict[str, Any]:
    return {
        "columns": columns,
        "intercept": 0.0,
        "grid_bits": GRID_BITS,
        "records_per_client": task.records_per_client,
    }


def moments_query(
    task: "RegressionTask", columns: tuple[Column, ...], squared_radius: float
) -> WeightedRowMatrix:
    """Return the query for moments of rows; the radius is of constant and features, in spreads.

    `columns` are those that are regressed.
    """
    query = unweighted_moments_query(task, (*columns, *_weights(task)), squared_radius)
    return query.model_copy(update={"record_weights": task.weights is not None})


def unweighted_moments_query(
    task: WithFeatures, columns: tuple[Column, ...], squared_radius: float
) -> WeightedRowMatrix:
    """Return the same of records that count alike."""
    return WeightedRowMatrix(
        columns=columns,
        intercept=CONSTANT,
        radius=_whole(squared_radius),
        grid_bits=GRID_BITS,
        records_per_client=task.records_per_client,
    )


def score_query(
    task: "RegressionTask",
    features: tuple[Column, ...],
    *,
    point: tuple[float, ...],
    dispersion: float,
    residual_cut: float,
) -> ScoreSum:
    """Return the query for scores at `point`, in spreads, the constant first."""
    return ScoreSum(
        columns=(*features, task.target.column(), *_weights(task)),
        intercept=CONSTANT,
        radius=math.sqrt(default_squared_radius(task)) / REACH,
        grid_bits=GRID_BITS,
        records_per_client=task.records_per_client,
        family=_family(task),
        point=tuple(REACH * each for each in point),
        dispersion=dispersion,
        residual_cut=residual_cut,
        record_weights=task.weights is not None,
    )


def _weights(task: "RegressionTask") -> tuple[Column, ...]:
    return () if task.weights is None else (task.weights.column(),)


def default_squared_radius(task: "RegressionTask") -> float:
    """Return the squared radius of rows that are not linear, in spreads."""
    return 1.0 + LONG * len(task.predictors)


def squared_radii(task: "RegressionTask") -> tuple[float, ...]:
    """Return what a linear model chooses its squared radius from, in spreads: 27 of them."""
    features = tuple(bounds.column() for bounds in task.features)
    norms = REACH * largest_norms(norm_query(task, features))
    largest = (REACH * LARGEST_RADIUS / math.hypot(1.0, TARGET_PART)) ** 2
    return tuple(min(1.0 + norm**2, largest) for norm in norms.tolist())


def squared_radius_of_predictions(task: "RegressionTask") -> float:
    """Return the squared radius of rows of a model that is to predict, in spreads."""
    return 1.0 + len(task.features)


def kinds_of_rounds(task: "RegressionTask") -> tuple[RoundTerms, ...]:
    """Return the terms of each kind of round, whatever the sums of those before turn out to be."""
    if task.asked() == PREDICTING:
        return _kinds_to_predict(task)
    queries: list[tuple[Query, int]] = [(first_query(task), 1)]
    as_stated = tuple(bounds.column() for bounds in task.regressed)
    radii = [default_squared_radius(task)]
    if task.family == "normal":
        radii = list(squared_radii(task))
        queries.append((norm_query(task, as_stated[:-1]), 1))
    queries.append((moments_query(task, as_stated, min(radii)), 1))
    if task.family != "normal":
        zero = (0.0,) * len(as_stated)
        scores = score_query(task, as_stated[:-1], point=zero, dispersion=1.0, residual_cut=1.0)
        queries.append((scores, len(SCORES)))
    return tuple(_kind(query, rounds, radii) for query, rounds in queries)


def _kinds_to_predict(task: "RegressionTask") -> tuple[RoundTerms, ...]:
    columns = tuple(bounds.column() for bounds in task.columns)
    centres, lengths = centre_query(task), length_query(task, columns)
    least, *_, most = largest_norms(lengths).tolist()
    spreads = spread_query(task, columns, most)
    around = Range(least=least, most=most)
    last = moments_query(task, columns, squared_radius_of_predictions(task))
    return (
        _as_stated(centres, recentred=False, radius=_only(centres.radius)),
        _as_stated(lengths, recentred=True, radius=None),
        _as_stated(spreads, recentred=True, radius=around),
        _kind(last, 1, [squared_radius_of_predictions(task)]),
    )


def _as_stated(query: Query, *, recentred: bool, radius: Range | None) -> RoundTerms:
    return RoundTerms(rounds=1, query=query, recentred=recentred, stretch=AS_STATED, radius=radius)


def _only(radius: float | None) -> Range | None:
    return None if radius is None else Range(least=radius, most=radius)


def _kind(query: Query, rounds: int, squared_radii: list[float]) -> RoundTerms:
    stretch, radius = Range(least=SMALLEST_SPREAD, most=REACH), None
    if isinstance(query, ColumnMoments):
        stretch = AS_STATED
    elif isinstance(query, WeightedRowMatrix):
        radius = Range(least=_whole(min(squared_radii)), most=_whole(max(squared_radii)))
    elif isinstance(query, ScoreSum) and query.radius is not None:
        radius = Range(least=query.radius, most=query.radius)
    return RoundTerms(
        rounds=rounds,
        query=query,
        recentred=not isinstance(query, ColumnMoments),
        stretch=stretch,
        radius=radius,
    )


def check_query(query: Query, task: "RegressionTask", *, number: int) -> None:
    """Refuse a query that the task's round `number` does not ask otherwise.

    Raises:
        RefusedSpec: the detail says why.
    """
    task.terms(least=2, most=2).check(query, number=number)


def _whole(squared_radius: float) -> float:
    """Return the radius of whole rows, over `REACH`, from that of constant and features."""
    return math.sqrt(squared_radius) * math.hypot(1.0, TARGET_PART) / REACH


def _family(task: "RegressionTask") -> Family:
    if task.family == "normal":
        raise ValueError("a linear model asks for no scores")
    return task.family
