"""Which queries a task's rounds may ask: what the learner, clients and certificates agree on."""

from collections.abc import Sequence

from shoal_protocol.errors import RefusedSpec
from shoal_protocol.queries import Query
from shoal_protocol.questions import families, linear_regression, variational
from shoal_protocol.questions.released import ReleasedSum
from shoal_protocol.tasks import FamilyTask, LinearRegressionTask, Task

__all__ = ["ReleasedSum", "check_question"]


def check_question(
    query: Query,
    task: Task,
    *,
    number: int,
    population: int,
    earlier: Sequence[ReleasedSum] | None,
) -> None:
    """Refuse a query that the task's round `number`, over `population` clients, does not ask.

    `earlier` are the sums of the rounds before it, in order; None for who has not seen them.

    Raises:
        RefusedSpec: the detail says why.
    """
    if number >= task.rounds or query.name != task.query_name(number):
        raise RefusedSpec("the job's task does not ask this query in this round")
    if query.records_per_client != task.records_per_client:
        raise RefusedSpec("records_per_client is not the job's")
    if isinstance(task, LinearRegressionTask):
        linear_regression.check_query(
            query, task, number=number, population=population, earlier=earlier
        )
    elif isinstance(task, FamilyTask):
        families.check_query(query, task)
    else:
        variational.check_query(query, task)
