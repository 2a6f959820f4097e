"""Jobs of many rounds: with batches by the public rule, and with hidden participation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyroaring import BitMap

from shoal_protocol.accounting import NOTHING, Cost
from shoal_protocol.amplification import hidden_round_mu
from shoal_protocol.batches import choose_batch
from shoal_protocol.documents import Signed
from shoal_protocol.hidden_participation import HiddenParticipation
from shoal_protocol.jobs import JobRequest
from shoal_protocol.participation import Participation
from shoal_protocol.queries import GradientSum
from shoal_protocol.questions.variational import gradient_query
from shoal_protocol.rounds import RoundSpec, make_spec
from shoal_protocol.schemes import ADDITIVE
from shoal_protocol.tasks import ColumnBounds, LogisticRegressionTask
from shoal_redteam.attacks.sybil import job_request
from shoal_redteam.findings import CannotAttack, Finding, seen
from shoal_redteam.stage import DROPOUTS, Stage
from shoal_redteam.trap import victim

FORBIDDEN: Final = "the policy allows no gradients, or no Gaussian noise"
_COLUMNS: Final = tuple(
    ColumnBounds(name=name, lower=-1.0, upper=1.0) for name in ("first", "second")
)


def are_allowed(stage: Stage) -> bool:
    """Tell whether the policy allows the rounds of these jobs."""
    policy = stage.consortium.manifest.policy
    return "gradient_sum" in policy.queries and "discrete_gaussian" in policy.mechanisms


def task_of(
    *, rounds: int, batch: int | None = None, rate: float | None = None
) -> LogisticRegressionTask:
    """Return a small logistic regression."""
    return LogisticRegressionTask(
        features=_COLUMNS[:1], target=_COLUMNS[1], rounds=rounds, batch=batch, participation=rate
    )


def job_of(
    stage: Stage, task: LogisticRegressionTask, *, population: int, **changes: Any
) -> Signed[JobRequest]:
    """Return the analyst's request for a job with this task, which so many join."""
    body = job_request(stage, round_seconds=30, grace_seconds=20).body
    fields = {"task": task, "minimum_population": population, "maximum_population": population}
    return stage.sign(body.model_copy(update=fields | changes), stage.analyst)


async def not_joined(stage: Stage, job: Signed[JobRequest]) -> Finding:
    """Show a data holder a job of hidden rounds that the policy does not allow."""
    async with victim(stage, job) as prey:
        await prey.step()
        return seen(
            "a job with hidden participation",
            stopped=not prey.trap.joined and bool(prey.refusal),
            answered=f"a data holder: {prey.refusal or 'joins'}",
            check="the policy's queries and mechanisms",
        )


def query_of(task: LogisticRegressionTask) -> GradientSum:
    """Return the query of the task's first round."""
    return gradient_query(task, (0.0,) * task.model.dimension(len(task.columns)))


def round_of(
    stage: Stage,
    job: Signed[JobRequest],
    clients: BitMap,
    *,
    cost: Cost,
    number: int = 0,
    seconds: float = 30.0,
    hidden: HiddenParticipation | None = None,
    dropouts: int = DROPOUTS,
) -> RoundSpec:
    """Return a round of a job for this price; with `hidden`, of whoever surely takes part.

    Raises:
        CannotAttack: the policy allows none.
    """
    task = job.body.task
    if not isinstance(task, LogisticRegressionTask):
        raise TypeError("these rounds are of logistic regressions only")
    try:
        return make_spec(
            manifest=stage.consortium,
            job=job.digest,
            number=number,
            query=query_of(task),
            mechanism="discrete_gaussian",
            cost=cost,
            population=clients,
            dropouts=dropouts,
            colluders=job.body.privacy.colluders,
            opened_at=stage.after(0.0),
            deadline=stage.after(seconds),
            give_up_at=stage.after(seconds + 20.0),
            sharing=ADDITIVE,
            hidden=hidden,
        )
    except ValueError as error:
        raise CannotAttack(f"no such round can be made: {error}") from error


def batches_of(job: Signed[JobRequest], population: Sequence[int]) -> list[BitMap]:
    """Return whom each round of a job asks, by the rule, if these join and nobody leaves."""
    task, found = job.body.task, []
    participation = Participation(BitMap(population))
    for _ in range(task.rounds):
        batch = choose_batch(
            participation,
            participation.population,
            job=job.digest,
            size=task.batch or len(population),
            most=task.participations(len(population)),
        )
        if batch is None:
            raise ValueError("the job's rounds ask too many")
        participation.add(batch, NOTHING)
        found.append(batch)
    return found


def known_cost(*, rate: float, rounds: int, whole: Cost) -> Cost:
    """Return what a hidden round costs whoever surely takes part, if all cost `whole` together."""
    return Cost.gaussian(hidden_round_mu(rate=rate, total=whole.mu, rounds=rounds))


@dataclass
class Hidden:
    """A job with hidden participation, and rounds of it."""

    stage: Stage
    whole: Cost  # of all its rounds
    rate: float
    rounds: int
    seconds: float  # that each takes answers
    job: Signed[JobRequest] = field(init=False)
    known: Cost = field(init=False)  # of one round, for whoever surely takes part

    def __post_init__(self) -> None:
        task = task_of(rounds=self.rounds, rate=self.rate)
        self.job = job_of(self.stage, task, population=len(self.stage.crew))
        self.known = known_cost(rate=self.rate, rounds=self.rounds, whole=self.whole)

    @property
    def terms(self) -> HiddenParticipation:
        """Return the terms of the first round."""
        return HiddenParticipation(rate=self.rate, rounds=self.rounds, prepaid_by=None)

    def first(self, **wishes: Any) -> RoundSpec:
        """Return the round that pays for all."""
        fields: dict[str, Any] = {"cost": self.known, "hidden": self.terms, "seconds": self.seconds}
        return round_of(self.stage, self.job, BitMap(self.stage.crew), **fields | wishes)

    def later(self, first: RoundSpec, number: int, **wishes: Any) -> RoundSpec:
        """Return a round that `first` has paid for."""
        fields = {"cost": first.known_cost, "hidden": self.terms.paid_by(first.digest)}
        return self.first(number=number, **fields | wishes)
