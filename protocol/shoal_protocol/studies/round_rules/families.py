"""Which query the round of an exponential family asks: it follows from the task alone."""

from typing import Final

from shoal_protocol.jobs.terms import AS_STATED, Range, RoundTerms
from shoal_protocol.queries import Counts, FirstMoments, Query, SecondMomentMatrix
from shoal_protocol.studies.families import (
    BernoulliTask,
    CategoricalTask,
    FamilyTask,
    NormalMeanTask,
    PoissonTask,
)
from shoal_protocol.wire.errors import RefusedSpec

_COUNT_BITS: Final = 20
_SUM_BITS: Final = 15


def query_of(task: FamilyTask) -> Counts | FirstMoments | SecondMomentMatrix:
    """Return the query of the task's only round.

    All of them carry the number of records, which nobody knows without noise.
    """
    records = task.records_per_client
    columns = tuple(bounds.column() for bounds in task.columns)
    match task:
        case BernoulliTask():
            return Counts(
                columns=columns,
                levels=(task.success,),
                other=True,
                grid_bits=_COUNT_BITS,
                records_per_client=records,
            )
        case CategoricalTask():
            return Counts(
                columns=columns,
                levels=task.levels,
                other=task.other,
                grid_bits=_COUNT_BITS,
                records_per_client=records,
            )
        case PoissonTask() | NormalMeanTask():
            return FirstMoments(
                columns=columns,
                intercept=0.0,
                radius=None,
                grid_bits=_SUM_BITS,
                records_per_client=records,
            )
    return SecondMomentMatrix(
        columns=columns,
        intercept=task.intercept,
        radius=None,
        grid_bits=task.grid_bits,
        records_per_client=records,
    )


def kind_of_round(task: FamilyTask) -> RoundTerms:
    """Return the terms of the only round: nothing is left open."""
    query = query_of(task)
    radius = None if isinstance(query, Counts) or query.radius is None else query.radius
    return RoundTerms(
        rounds=1,
        query=query,
        recentred=False,
        stretch=AS_STATED,
        radius=None if radius is None else Range(least=radius, most=radius),
    )


def check_query(query: Query, task: FamilyTask) -> None:
    """Refuse a query that is not the task's.

    Raises:
        RefusedSpec: it is not.
    """
    if query != query_of(task):
        raise RefusedSpec("the query is not the one that the job's family asks")
