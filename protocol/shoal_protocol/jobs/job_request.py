"""Job requests: what an analyst asks, whether a consortium allows it, and its rounds."""

from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import pydantic
from pydantic import Field, StringConstraints

from shoal_protocol.jobs.terms import Terms
from shoal_protocol.privacy.accounting import Cap, Cost, compose
from shoal_protocol.queries import Mechanism
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.trust.limits import (
    LARGEST_POPULATION,
    LONGEST_SECONDS,
    Limits,
    is_too_far,
    too_far_message,
)
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.wire.documents import BoundDocument, Model, Role
from shoal_protocol.wire.encoding import Name, NonceHex, Timestamp
from shoal_protocol.wire.errors import RefusedJob, RefusedSpec
from shoal_protocol.wire.numbers import Clients, Delta

Purpose = Annotated[
    str,
    StringConstraints(
        max_length=300, pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"
    ),
]
"""What an analyst says that a job is for: one line, without signs that control how it is shown."""

SPARE_TIME: Final = timedelta(days=1)  # of a job, for services that stop and start again


class PrivacyDemand(Model):
    """The whole job's price for one client, by replacement adjacency.

    delta = 0 asks for pure epsilon, and so for discrete Laplace noise; any other delta for discrete
    Gaussian noise. `dropouts` clients may be missing from a cohort, and `colluders` of those in it
    may reveal or withhold their noise, before the price rises (T = dropouts + colluders in
    Theorem 1).
    """

    epsilon: float = Field(gt=0, le=100)
    delta: Delta
    dropouts: Clients
    colluders: Clients

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


def _is_object(value: object) -> object:
    if isinstance(value, dict | pydantic.BaseModel):
        return value
    raise ValueError("should be a task")


class JobRequest(BoundDocument):
    """Analyst -> everyone: what may be asked, of how many, by when and at what price.

    Trainer, analyst and auditor read the `task`, and check terms and rounds against it
    (`studies`). Data holders need not understand it.
    """

    signed_by: ClassVar[Role] = Role.ANALYST
    signer_field: ClassVar[str | None] = "analyst"

    kind: Literal["job_request"] = "job_request"
    nonce: NonceHex  # tells two otherwise equal requests apart
    analyst: Name
    purpose: Purpose = ""
    task: Annotated[Any, pydantic.BeforeValidator(_is_object)]
    terms: Terms
    privacy: PrivacyDemand
    sharing: Sharing  # of every round
    minimum_population: Annotated[Clients, Field(ge=2)]
    maximum_population: int = Field(ge=2, le=LARGEST_POPULATION)
    join_deadline: Timestamp
    round_seconds: int = Field(ge=1, le=LONGEST_SECONDS)  # for uploads, until its deadline
    grace_seconds: int = Field(ge=1, le=LONGEST_SECONDS)  # from there until services give up

    @pydantic.model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if self.maximum_population < self.minimum_population:
            raise ValueError("maximum_population is below minimum_population")
        if self.privacy.dropouts + self.privacy.colluders + 1 >= self.smallest_round:
            what = "minimum_population" if self.terms.batch is None else "batch"
            raise ValueError(f"{what} must exceed dropouts + colluders + 1")
        try:
            _ = self.ends_by
        except OverflowError:
            raise ValueError("the job has no end before the year 10000") from None
        return self

    @property
    def ends_by(self) -> datetime:
        """Return when the job is over at the latest: no round may outlast this moment."""
        seconds = self.terms.rounds * (self.round_seconds + self.grace_seconds)
        return self.join_deadline + timedelta(seconds=seconds) + SPARE_TIME

    @property
    def smallest_round(self) -> int:
        """Return how many clients a round asks at least: a batch, or all who joined."""
        return self.terms.batch or self.minimum_population


def check_job(request: JobRequest, manifest: Manifest) -> None:
    """Refuse a job that the consortium's policy does not allow.

    Raises:
        RefusedJob: the detail says what to change.
    """
    policy, nodes = manifest.policy, len(manifest.compute_nodes)
    if reason := policy.sharing_refusal(request.sharing, nodes=nodes):
        raise RefusedJob(reason)
    batch = request.terms.batch
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
    for query in request.terms.query_names:
        if query not in policy.queries:
            raise RefusedJob(f"the policy does not allow the query {query}")


def job_refusal(request: JobRequest, limits: Limits, *, now: datetime) -> str | None:
    """Return why a job reaches further ahead of `now` than a policy allows, or None."""
    if is_too_far(request.join_deadline, limits.maximum_join_seconds, now):
        limit = f"the policy's maximum_join_seconds, {limits.maximum_join_seconds}"
        return too_far_message("join_deadline", request.join_deadline, now, limit)
    if is_too_far(request.ends_by, limits.maximum_job_seconds, now):
        limit = f"the policy's maximum_job_seconds, {limits.maximum_job_seconds}"
        return too_far_message("the job's end", request.ends_by, now, limit)
    return None


def check_round_of_job(
    spec: RoundSpec,
    request: JobRequest,
    *,
    spent: Cost,
) -> None:
    """Refuse a round that asks for anything but what the job's terms promised to who joined it.

    `spent` is the most that the rounds before it cost a client of its population. Whether it is the
    round's turn, and which clients', is the caller's to check, and what the manifest says of a spec
    is `check_spec`'s.

    Raises:
        RefusedSpec: the detail says why.
    """
    if spec.job != request.digest:
        raise RefusedSpec("the spec is for another job or round")
    terms, privacy = request.terms, request.privacy
    terms.check(spec.query, number=spec.number)
    if (spec.dropouts, spec.colluders) != (privacy.dropouts, privacy.colluders):
        raise RefusedSpec("dropouts and colluders are not those of the job")
    if spec.give_up_at > request.ends_by:
        raise RefusedSpec("the round would outlast the job")
    if spec.sharing != request.sharing:
        raise RefusedSpec("the sharing scheme is not that of the job")
    least = terms.batch or request.minimum_population
    most = terms.batch or request.maximum_population
    if not least <= spec.population_size <= most:
        raise RefusedSpec("the population is smaller or larger than the job allows")
    if spec.noise.mechanism != privacy.mechanism:
        raise RefusedSpec("the noise is not of the job's mechanism")
    if not privacy.cap.allows(compose([spent, spec.cost])):
        raise RefusedSpec("the job's rounds together cost more than the job may")
