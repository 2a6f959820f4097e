"""Jobs of many rounds, with batches by the public rule."""

from typing import Any, Final

from pyroaring import BitMap

from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.queries import GradientSum
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.rounds.batches import make_spec
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.studies.variational import LogisticRegressionTask
from shoal_protocol.wire.documents import Signed
from shoal_redteam.attacks.sybil import job_request
from shoal_redteam.findings import CannotAttack
from shoal_redteam.target import DROPOUTS, Target

FORBIDDEN: Final = "the policy allows no gradients, or no Gaussian noise"
_COLUMNS: Final = tuple(
    ColumnBounds(name=name, lower=-1.0, upper=1.0) for name in ("first", "second")
)


def are_allowed(target: Target) -> bool:
    """Tell whether the policy allows the rounds of these jobs."""
    policy = target.consortium.manifest.policy
    return "gradient_sum" in policy.queries and "discrete_gaussian" in policy.mechanisms


def task_of(*, rounds: int, batch: int) -> LogisticRegressionTask:
    """Return a small logistic regression."""
    return LogisticRegressionTask(
        features=_COLUMNS[:1], target=_COLUMNS[1], rounds=rounds, batch=batch
    )


def job_of(
    target: Target, task: LogisticRegressionTask, *, population: int, **changes: Any
) -> Signed[StudyRequest]:
    """Return the analyst's request for a job with this task, which so many join."""
    body = job_request(target, round_seconds=30, grace_seconds=20).body
    fields = {
        "task": task,
        "terms": task.terms(least=population, most=population),
        "minimum_population": population,
        "maximum_population": population,
    }
    signed = target.sign(body.model_copy(update=fields | changes), target.analyst)
    target.ask_for(signed)
    return signed


def query_of(task: LogisticRegressionTask) -> GradientSum:
    """Return the query of the task's first round."""
    return task.gradient_query((0.0,) * task.model.dimension(len(task.columns)))


def round_of(
    target: Target,
    job: Signed[StudyRequest],
    clients: BitMap,
    *,
    cost: Cost,
    number: int = 0,
    seconds: float = 30.0,
    dropouts: int = DROPOUTS,
) -> RoundSpec:
    """Return a round of a job for this price.

    Raises:
        CannotAttack: the policy allows none.
    """
    task = job.body.task
    if not isinstance(task, LogisticRegressionTask):
        raise TypeError("these rounds are of logistic regressions only")
    try:
        return make_spec(
            manifest=target.consortium,
            job=job.digest,
            number=number,
            query=query_of(task),
            mechanism="discrete_gaussian",
            cost=cost,
            population=clients,
            dropouts=dropouts,
            colluders=job.body.privacy.colluders,
            opened_at=target.after(0.0),
            deadline=target.after(seconds),
            give_up_at=target.after(seconds + 20.0),
            sharing=ADDITIVE,
        )
    except ValueError as error:
        raise CannotAttack(f"no such round can be made: {error}") from error
