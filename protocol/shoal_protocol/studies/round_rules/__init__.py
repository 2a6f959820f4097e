"""Which queries a task's rounds may ask: what the learner, clients and certificates agree on."""

from collections.abc import Sequence

from shoal_protocol.jobs.terms import RoundTerms, Terms, alike
from shoal_protocol.queries import Query
from shoal_protocol.studies import FamilyTask, LinearRegressionTask, Task
from shoal_protocol.studies.round_rules import families, linear_regression, variational
from shoal_protocol.studies.round_rules.released import ReleasedSum
from shoal_protocol.wire.errors import RefusedJob, RefusedSpec

__all__ = ["ReleasedSum", "check_question", "check_terms_of_task", "terms_of"]


def check_question(
    query: Query,
    task: Task,
    *,
    number: int,
    population: int,
    earlier: Sequence[ReleasedSum],
) -> None:
    """Refuse a query that the task's round `number`, over `population` clients, does not ask.

    `earlier` are the sums of the rounds before it, in order.

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


def terms_of(task: Task, *, least: int, most: int) -> Terms:
    """Return what a job of this task, over `least` to `most` clients, asks of those who hold data.

    Raises:
        ValueError: no query asks this.
    """
    kinds: tuple[RoundTerms, ...]
    if isinstance(task, LinearRegressionTask):
        kinds = linear_regression.kinds_of_rounds(task, least=least, most=most)
    elif isinstance(task, FamilyTask):
        kinds = (families.kind_of_round(task),)
    else:
        kinds = (variational.kind_of_round(task),)
    return Terms(bounds=task.columns, batch=task.batch, kinds=kinds)


def check_terms_of_task(terms: Terms, task: Task, *, least: int, most: int) -> None:
    """Refuse terms that are not those of the task.

    Raises:
        RefusedJob
    """
    try:
        due = terms_of(task, least=least, most=most)
    except ValueError as error:
        raise RefusedJob("no query asks what the task does") from error
    if not alike(terms.model_dump(), due.model_dump()):
        raise RefusedJob("its terms are not those of its task")
