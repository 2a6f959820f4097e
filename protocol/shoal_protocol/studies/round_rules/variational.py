"""Which queries the rounds of variational inference may ask.

All but the point follows from the task. The point is the trainer's to choose: whatever it is, each
gradient is clipped, so a client loses no more than the round costs, and a bad point only makes a
bad posterior.
"""

from collections.abc import Sequence

from shoal_protocol.jobs.terms import AS_STATED, RoundTerms
from shoal_protocol.queries import GradientSum, Query
from shoal_protocol.studies.variational import VariationalTask
from shoal_protocol.wire.errors import RefusedSpec


def gradient_query(task: VariationalTask, point: Sequence[float]) -> GradientSum:
    """Return the query of a round that takes gradients at `point`.

    Raises:
        ValueError: the point does not have one coordinate for each latent, or is too far out.
    """
    return GradientSum(
        model=task.model,
        columns=tuple(bounds.column() for bounds in task.columns),
        point=tuple(point),
        clip=task.clip,
        grid_bits=task.grid_bits,
        records_per_client=task.records_per_client,
    )


def kind_of_round(task: VariationalTask) -> RoundTerms:
    """Return the terms of all rounds, which differ in the point alone."""
    dimension = task.model.dimension(len(task.columns))
    return RoundTerms(
        rounds=task.rounds,
        query=gradient_query(task, [0.0] * dimension),
        recentred=False,
        stretch=AS_STATED,
        radius=None,
    )


def check_query(query: Query, task: VariationalTask) -> None:
    """Refuse a query that no round of the task asks.

    Raises:
        RefusedSpec: the detail says why.
    """
    if not isinstance(query, GradientSum) or query.model != task.model:
        raise RefusedSpec("the query's model is not that of the job")
    if query.columns != tuple(bounds.column() for bounds in task.columns):
        raise RefusedSpec("the query's columns are not those of the job, with its bounds")
    if (query.clip, query.grid_bits) != (task.clip, task.grid_bits):
        raise RefusedSpec("the query's clip or grid is not the job's")
