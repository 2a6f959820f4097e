"""Which queries a study of moments asks: columns measured, norms counted, then one matrix.

Centres and spreads follow from the first round, and the radius from the second. Whatever they are,
a record loses no more than its round costs. They are in the ranges of the terms.
"""

import math
from typing import TYPE_CHECKING, Final

from shoal_protocol.jobs.terms import AS_STATED, Range, RoundTerms
from shoal_protocol.queries import Column, ColumnMoments, NormCounts, QueryName, SecondMomentMatrix
from shoal_protocol.queries.sums import largest_norms
from shoal_protocol.studies.regression.round_rules import (
    CONSTANT,
    GRID_BITS,
    REACH,
    SMALLEST_SPREAD,
)

if TYPE_CHECKING:
    from shoal_protocol.studies.moments import MomentsTask

ROUNDS: Final[tuple[QueryName, ...]] = ("column_moments", "norm_counts", "second_moment_matrix")


def first_query(task: "MomentsTask") -> ColumnMoments:
    """Return the query that measures all columns."""
    return ColumnMoments(
        columns=tuple(bounds.column() for bounds in task.columns),
        intercept=0.0,
        radius=None,
        grid_bits=GRID_BITS,
        records_per_client=task.records_per_client,
    )


def norm_query(task: "MomentsTask", columns: tuple[Column, ...]) -> NormCounts:
    """Return the query that counts rows by their norm."""
    return NormCounts(
        columns=columns,
        intercept=0.0,
        radius=None,
        grid_bits=GRID_BITS,
        records_per_client=task.records_per_client,
    )


def matrix_query(
    task: "MomentsTask", columns: tuple[Column, ...], squared_radius: float
) -> SecondMomentMatrix:
    """Return the query for the matrix; the radius is of constant and columns, in spreads."""
    return SecondMomentMatrix(
        columns=columns,
        intercept=CONSTANT,
        radius=math.sqrt(squared_radius) / REACH,
        grid_bits=GRID_BITS,
        records_per_client=task.records_per_client,
    )


def squared_radii(task: "MomentsTask") -> tuple[float, ...]:
    """Return what the squared radius is chosen from, in spreads: 27 of them."""
    columns = tuple(bounds.column() for bounds in task.columns)
    norms = REACH * largest_norms(norm_query(task, columns))
    return tuple((1.0 + norms**2).tolist())


def kinds_of_rounds(task: "MomentsTask") -> tuple[RoundTerms, ...]:
    """Return the terms of each round, whatever the sums of those before turn out to be."""
    as_stated = tuple(bounds.column() for bounds in task.columns)
    radii = squared_radii(task)
    least, most = (
        matrix_query(task, as_stated, each).radius or 0.0 for each in (min(radii), max(radii))
    )
    measured = Range(least=SMALLEST_SPREAD, most=REACH)
    return (
        RoundTerms(
            rounds=1, query=first_query(task), recentred=False, stretch=AS_STATED, radius=None
        ),
        RoundTerms(
            rounds=1,
            query=norm_query(task, as_stated),
            recentred=True,
            stretch=measured,
            radius=None,
        ),
        RoundTerms(
            rounds=1,
            query=matrix_query(task, as_stated, min(radii)),
            recentred=True,
            stretch=measured,
            radius=Range(least=least, most=most),
        ),
    )
