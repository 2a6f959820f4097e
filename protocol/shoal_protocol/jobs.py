"""Job requests and posteriors: what analysts and the trainer say of a job."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, Self

import numpy as np
import pydantic
from pydantic import Field
from pyroaring import BitMap

from shoal_protocol.accounting import Cap, Cost, compose, epsilon_of
from shoal_protocol.attestations import Result
from shoal_protocol.documents import BoundDocument, Model, Role
from shoal_protocol.encoding import Digest, Name, NonceHex, Timestamp
from shoal_protocol.errors import RefusedJob, RefusedSpec
from shoal_protocol.manifest import Manifest
from shoal_protocol.participation import Participation
from shoal_protocol.posteriors import Posterior
from shoal_protocol.posteriors.showing import ShownReport
from shoal_protocol.prepayment import check_promised
from shoal_protocol.purchases import Purchase, purchases
from shoal_protocol.queries import Mechanism
from shoal_protocol.questions import ReleasedSum, check_question
from shoal_protocol.rounds import LARGEST_POPULATION, RoundSpec
from shoal_protocol.schemes import Sharing
from shoal_protocol.tasks import Task, participation_of

if TYPE_CHECKING:
    from arviz import InferenceData

SPARE_TIME: Final = timedelta(days=1)  # of a job, for services that stop and start again


class PrivacyDemand(Model):
    """The whole job's price for one client, by replacement adjacency.

    delta = 0 asks for pure epsilon, and so for discrete Laplace noise; any other delta for discrete
    Gaussian noise. `dropouts` clients may be missing from a cohort, and `colluders` of those in it
    may reveal or withhold their noise, before the price rises (T = dropouts + colluders in
    Theorem 1).
    """

    epsilon: float = Field(gt=0, le=100)
    delta: float = Field(ge=0, lt=1)
    dropouts: int = Field(ge=0)
    colluders: int = Field(ge=0)

    @property
    def cap(self) -> Cap:
        """Return what all rounds of the job together may cost one client."""
        return Cap(epsilon=self.epsilon, delta=self.delta)

    @property
    def cost(self) -> Cost:
        """Return the cost of a job that uses all of it."""
        return self.cap.whole

    @property
    def mechanism(self) -> Mechanism:
        """Return the noise that the job's rounds use."""
        return self.cap.mechanism


class JobRequest(BoundDocument):
    """Analyst -> trainer: what to learn, from how many, by when and at what price."""

    signed_by: ClassVar[Role] = Role.ANALYST
    signer_field: ClassVar[str | None] = "analyst"

    kind: Literal["job_request"] = "job_request"
    nonce: NonceHex  # tells two otherwise equal requests apart
    analyst: Name
    task: Task
    privacy: PrivacyDemand
    sharing: Sharing  # of every round
    minimum_population: int = Field(ge=2)
    maximum_population: int = Field(ge=2, le=LARGEST_POPULATION)
    join_deadline: Timestamp
    round_seconds: int = Field(ge=1)  # for uploads, from a round's announcement to its deadline
    grace_seconds: int = Field(ge=1)  # for the services, from the deadline until they give up

    @pydantic.model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if self.maximum_population < self.minimum_population:
            raise ValueError("maximum_population is below minimum_population")
        if self.privacy.dropouts + self.privacy.colluders + 1 >= self.smallest_round:
            what = "minimum_population" if self.task.batch is None else "batch"
            raise ValueError(f"{what} must exceed dropouts + colluders + 1")
        try:
            _ = self.ends_by
        except OverflowError:
            raise ValueError("the job has no end before the year 10000") from None
        return self

    @property
    def ends_by(self) -> datetime:
        """Return when the job is over whatever became of it: no round may outlast this moment."""
        seconds = self.task.rounds * (self.round_seconds + self.grace_seconds)
        return self.join_deadline + timedelta(seconds=seconds) + SPARE_TIME

    @property
    def smallest_round(self) -> int:
        """Return how many clients a round asks at least: a batch, or all who joined."""
        return self.task.batch or self.minimum_population

    @property
    def spare_rounds(self) -> int:
        """Return how many of its rounds the job may lose, and still give a posterior."""
        return self.task.rounds // 10


def check_job(request: JobRequest, manifest: Manifest) -> None:
    """Refuse a job that the consortium's policy does not allow.

    Raises:
        RefusedJob: the detail says what to change.
    """
    policy, nodes = manifest.policy, len(manifest.compute_nodes)
    if reason := request.sharing.refusal(nodes=nodes, minimum_threshold=policy.minimum_threshold):
        raise RefusedJob(reason)
    batch = request.task.batch
    if request.smallest_round - request.privacy.dropouts < policy.minimum_cohort:
        what = "minimum_population" if batch is None else "batch"
        raise RefusedJob(f"{what} less dropouts must be at least {policy.minimum_cohort}")
    if batch is not None and batch > request.minimum_population:
        raise RefusedJob("batch may be at most minimum_population")
    if request.privacy.colluders < policy.minimum_colluders:
        raise RefusedJob(f"colluders must be at least {policy.minimum_colluders}")
    if request.privacy.mechanism not in policy.mechanisms:
        needed = "a delta of 0" if request.privacy.delta else "a delta above 0"
        raise RefusedJob(
            f"the consortium's manifest does not allow the mechanism: it demands {needed} (its "
            "authority chose by --mechanism of `shoal consortium create`)"
        )
    if not policy.cap.allows(request.privacy.cost):
        asked, allowed = request.privacy.cap, policy.cap
        raise RefusedJob(f"{asked} exceeds what the policy allows one client: {allowed}")
    if request.round_seconds + request.grace_seconds > policy.maximum_round_seconds:
        raise RefusedJob(
            f"round_seconds + grace_seconds may be at most {policy.maximum_round_seconds}"
        )
    for query in request.task.query_names():
        if query not in policy.queries:
            raise RefusedJob(f"the policy does not allow the query {query}")
    if participation_of(request.task) is not None:
        for whose, cap in (("the job's", request.privacy.cap), ("the policy's", policy.cap)):
            if not cap.forgives_slack:
                raise RefusedJob(f"{whose} delta is too small for hidden participation")


def check_round_of_job(
    spec: RoundSpec,
    request: JobRequest,
    *,
    spent: Cost,
    earlier: Sequence[ReleasedSum] | None,
) -> None:
    """Refuse a round that asks for anything but what the job promised to those who joined it.

    `spent` is the most that the rounds before it cost a client of its population; `earlier` are
    their sums, None for who has not seen them. Whether it is the round's turn, and which clients',
    is the caller's to check, and what the manifest says of a spec is `check_spec`'s.

    Raises:
        RefusedSpec: the detail says why.
    """
    if spec.job != request.digest:
        raise RefusedSpec("the spec is for another job or round")
    task, privacy = request.task, request.privacy
    check_question(
        spec.query, task, number=spec.number, population=spec.population_size, earlier=earlier
    )
    if (spec.dropouts, spec.colluders) != (privacy.dropouts, privacy.colluders):
        raise RefusedSpec("dropouts and colluders are not those of the job")
    if spec.give_up_at > request.ends_by:
        raise RefusedSpec("the round would outlast the job")
    if spec.sharing != request.sharing:
        raise RefusedSpec("the sharing scheme is not that of the job")
    least, most = task.batch or request.minimum_population, task.batch or request.maximum_population
    if not least <= spec.population_size <= most:
        raise RefusedSpec("the population is smaller or larger than the job allows")
    if spec.noise.mechanism != privacy.mechanism:
        raise RefusedSpec("the noise is not of the job's mechanism")
    if not privacy.cap.allows(compose([spent, spec.cost])):
        raise RefusedSpec("the job's rounds together cost more than the job may")
    check_promised(spec, rate=participation_of(task), rounds=task.rounds, cap=privacy.cap)


class PrivacySpent(Model):
    """What a job cost each client of its population at most; delta is 0 where epsilon is pure."""

    epsilon: float = Field(ge=0)
    delta: float = Field(ge=0, lt=1)
    mu: float = Field(ge=0)

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:.4g} at delta {self.delta:.3g} for each client"


class Participations(Model):
    """In how many of a job's rounds the clients of its population were asked."""

    least: int = Field(ge=0)
    most: int = Field(ge=0)


class PosteriorReport(ShownReport, BoundDocument):
    """Trainer -> analyst: the posterior, the rounds it came from and what they cost.

    A client pays for the rounds that asked it, those that were lost too: its answer may have left
    it. `privacy` is what the client pays that pays most.
    """

    signed_by: ClassVar[Role] = Role.TRAINER

    kind: Literal["posterior_report"] = "posterior_report"
    job: Digest
    rounds: tuple[Digest, ...]
    results: tuple[Digest, ...]
    lost_rounds: tuple[Digest, ...]  # that released nothing
    population_size: int = Field(ge=2)
    participations: Participations
    cohort_sizes: tuple[Annotated[int, Field(ge=1)], ...]
    sharing: Sharing
    compute_nodes: tuple[Annotated[int, Field(ge=2)], ...]  # of each round, and
    partial_sums: tuple[Annotated[int, Field(ge=2)], ...]  # how many of them its result rests on
    privacy: PrivacySpent
    purchases: tuple[Purchase, ...]  # what it was spent on, lost rounds too
    posterior: Posterior

    @pydantic.model_validator(mode="after")
    def _rounds_agree(self) -> Self:
        counts = (self.cohort_sizes, self.compute_nodes, self.partial_sums)
        if {len(each) for each in (self.results, *counts)} != {len(self.rounds)}:
            raise ValueError(
                "rounds, results, cohort_sizes, compute_nodes and partial_sums must have one entry "
                "per round"
            )
        return self

    @classmethod
    def of(
        cls,
        request: JobRequest,
        released: Sequence[tuple[RoundSpec, Result]],
        *,
        lost: Sequence[RoundSpec],
        population: BitMap,
        posterior: Posterior,
    ) -> Self:
        """Return the report of a job that is done, with what its rounds really cost.

        Raises:
            ValueError: a round asks clients who are not of `population`, those who joined.
        """
        participation, delta = Participation(population), request.privacy.delta
        specs = [*(spec for spec, _ in released), *lost]
        for spec in specs:
            participation.add(spec.clients(), spec.cost)
        spent = participation.largest()
        return cls(
            manifest=request.manifest,
            job=request.digest,
            rounds=tuple(spec.digest for spec, _ in released),
            results=tuple(result.digest for _, result in released),
            lost_rounds=tuple(spec.digest for spec in lost),
            population_size=len(population),
            participations=Participations(
                least=int(participation.rounds.min()), most=int(participation.rounds.max())
            ),
            cohort_sizes=tuple(result.cohort_size for _, result in released),
            sharing=request.sharing,
            compute_nodes=tuple(len(spec.compute_nodes) for spec, _ in released),
            partial_sums=tuple(len(result.partial_sums) for _, result in released),
            privacy=PrivacySpent(
                epsilon=epsilon_of([spent], delta=delta), delta=delta, mu=spent.mu
            ),
            purchases=purchases(specs),
            posterior=posterior,
        )

    def to_arviz(
        self,
        generator: np.random.Generator | None = None,  # noqa: TID251
        *,
        count: int = 4000,
    ) -> "InferenceData":
        """Return the posterior for ArviZ, with the job and its price among the attributes.

        Arguments and errors as for a posterior's own `to_arviz`.
        """
        facts = {
            "job": self.job,
            "population_size": self.population_size,
            "cohort_sizes": ", ".join(str(size) for size in self.cohort_sizes),
            **self.privacy.model_dump(),
        }
        return self.posterior.to_arviz(generator, count=count, attributes=facts)
