"""Job requests: what an analyst asks, whether a consortium allows it, and the terms of its rounds.

The analyst derives the terms from the job's task, and the trainer derives them again and compares
(`shoal_studies`). Everybody else reads only the terms, and checks every round against them.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Self

import pydantic
from pydantic import Field, StringConstraints, model_validator

from shoal_protocol.privacy.accounting import USELESS_DELTA, Cap, Cost, compose
from shoal_protocol.queries import GradientSum, Mechanism, Query, QueryName, Tables, VectorSum
from shoal_protocol.queries.columns import ColumnBounds, variables_of
from shoal_protocol.queries.models import InstalledModel
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.trust.policy import (
    LARGEST_POPULATION,
    LONGEST_SECONDS,
    TimeLimits,
)
from shoal_protocol.wire.documents import (
    AnalystDocument,
    Model,
)
from shoal_protocol.wire.encoding import Clients, Delta, NonceHex, Positive, Timestamp
from shoal_protocol.wire.errors import RefusedJob, RefusedSpec

MOST_ROUNDS: Final = 100_000
TOLERANCE: Final = 1.1e-5  # a step of the sixth digit, to which another machine may round

# what the ranges say of a query, not its equality
_OPEN: Final = {
    *("columns", "radius"),
    *("basis", "point", "dispersion", "residual_cut", "hazard_cut", "unit_rows"),
}


class Range(Model):
    """The numbers from `least` to `most`, and those that differ by rounding alone."""

    least: Positive
    most: Positive

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.most < self.least:
            raise ValueError("most is below least")
        return self

    def holds(self, value: float) -> bool:
        """Tell whether a number is one of them."""
        return self.least * (1.0 - TOLERANCE) <= value <= self.most * (1.0 + TOLERANCE)


AS_STATED: Final = Range(least=1.0, most=1.0)


class RoundTerms(Model):
    """`rounds` rounds, one after another, that ask `query` but for what is left open here.

    A column's scale is that in `query` times a factor in `stretch`. Its centre is that in `query`,
    or, in a round that is `recentred`, any within the column's bounds; so are the edges of tables,
    no more than in `query`. The radius is in `radius`; None: there is none. The point of gradients
    and scores is always open, and so are the basis in which scores are taken, how they are weighted
    and cut, and whether rows are weighted or made of one length: whatever these are, each is
    clipped, so a client loses no more than the round costs.
    """

    rounds: int = Field(ge=1, le=MOST_ROUNDS)
    query: Query
    recentred: bool
    stretch: Range
    radius: Range | None

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        if not self._allows_radius(self.query):
            raise ValueError("radius is not a range about the query's own")
        return self

    def _allows_radius(self, query: Query) -> bool:
        radius: float | None = getattr(query, "radius", None)
        if radius is None or self.radius is None:
            return radius is None and self.radius is None
        return self.radius.holds(radius)

    def check(self, query: Query, bounds: dict[str, ColumnBounds]) -> None:
        """Refuse a query that is none of these rounds'.

        Raises:
            RefusedSpec: the detail says what differs.
        """
        if query.name != self.query.name:
            raise RefusedSpec("the job's terms do not ask this query in this round")
        named = [[(each.name, each.term) for each in one.columns] for one in (query, self.query)]
        if named[0] != named[1]:
            raise RefusedSpec("the query's columns are not those of the job's terms")
        is_open = _OPEN | {"cuts"} if self.recentred else _OPEN
        asked, due = (each.model_dump(exclude=is_open) for each in (query, self.query))
        if different := sorted(name for name in due if asked[name] != due[name]):
            raise RefusedSpec(f"the query's {different[0]} is not that of the job's terms")
        for column, as_stated in zip(query.columns, self.query.columns, strict=True):
            of_column = bounds[column.name]
            centre = of_column.centre if self.recentred else as_stated.centre
            allowed = (1.0 if self.recentred else 0.0) + TOLERANCE  # in half ranges
            if abs(column.centre - centre) > allowed * of_column.half_range:
                raise RefusedSpec("the query's columns are not centred as the job's terms say")
            if not self.stretch.holds(column.scale / as_stated.scale):
                raise RefusedSpec("the query's scales are not in the range of the job's terms")
        if self.recentred and isinstance(self.query, Tables) and isinstance(query, Tables):
            if not self.query.differs_in_edges_alone(query, bounds):
                raise RefusedSpec("the query's cuts are not those that the job's terms allow")
        if not self._allows_radius(query):
            raise RefusedSpec("the query's radius is not in the range of the job's terms")


class Terms(Model):
    """What all rounds of a job may ask, in their order; the price is in the request.

    `bounds` are the public ranges of all columns that the rounds are about. A round asks `batch`
    clients, None: all who joined. Cells of tables that may hold fewer than `smallest_cell` records
    are not shown.
    """

    bounds: tuple[ColumnBounds, ...] = Field(min_length=1, max_length=512)
    batch: Annotated[Clients, Field(ge=2)] | None
    smallest_cell: int = Field(default=0, ge=0, le=1_000_000)
    kinds: tuple[RoundTerms, ...] = Field(min_length=1, max_length=4)

    @model_validator(mode="after")
    def _bounds_of_all(self) -> Self:
        bounded = {each.name: each.term for each in self.bounds}
        if len(bounded) != len(self.bounds):
            raise ValueError("two columns have the same name")
        asked = [{each.name: each.term for each in kind.query.columns} for kind in self.kinds]
        if any(bounded != columns for columns in asked):
            raise ValueError("every kind of round is about the columns that have bounds")
        if len(self.kinds) > 1 and "vector_sum" in self.query_names:
            raise ValueError("a vector is read by one kind of round alone")
        if self.rounds > MOST_ROUNDS:
            raise ValueError(f"a job has at most {MOST_ROUNDS} rounds")
        return self

    @property
    def rounds(self) -> int:
        """How many rounds the job has, at most."""
        return sum(kind.rounds for kind in self.kinds)

    @property
    def read(self) -> tuple[ColumnBounds, ...]:
        """The bounds of what rounds read of records: those of a vector for each of its entries."""
        query = self.kinds[0].query
        if not isinstance(query, VectorSum):
            return self.bounds
        [each] = self.bounds
        return _of_entries(each, query.column_names)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns of the records that the rounds read."""
        return variables_of(self.read)

    @property
    def query_names(self) -> tuple[QueryName, ...]:
        """Names of the queries that the rounds ask, one of each kind of round."""
        return tuple(kind.query.name for kind in self.kinds)

    def installed_models(self) -> Iterator[tuple[InstalledModel, GradientSum]]:
        """Yield the NumPyro models whose gradients are asked for, each with the query."""
        for kind in self.kinds:
            if isinstance(kind.query, GradientSum) and isinstance(kind.query.model, InstalledModel):
                yield kind.query.model, kind.query

    def check(self, query: Query, *, number: int) -> None:
        """Refuse a query that round `number` does not ask.

        Raises:
            RefusedSpec: the detail says what differs.
        """
        left = number
        for kind in self.kinds:
            if left < kind.rounds:
                return kind.check(query, {each.name: each for each in self.bounds})
            left -= kind.rounds
        raise RefusedSpec("the job has no such round")


@lru_cache(maxsize=4)
def _of_entries(bounds: ColumnBounds, names: tuple[str, ...]) -> tuple[ColumnBounds, ...]:
    return tuple(bounds.model_copy(update={"name": name}) for name in names)


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


_STUDY: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


def study_name(value: object) -> str:
    """Return the name of an undecoded task or posterior.

    Raises:
        ValueError: it has none.
    """
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    if not isinstance(name, str) or not _STUDY.fullmatch(name):
        raise ValueError("should have the name of a study: lower-case letters, digits and _")
    return name


def _has_name(value: object) -> object:
    study_name(value)
    return value


Undecoded = Annotated[Any, pydantic.BeforeValidator(_has_name)]
"""A task or posterior of which only the name is read; `shoal_studies` decodes it."""


class JobRequest(AnalystDocument):
    """Analyst -> everyone: what may be asked, of how many, by when and at what price.

    Everybody checks rounds by the `terms`; the `task` is for trainer and analyst.
    """

    kind: Literal["job_request"] = "job_request"
    nonce: NonceHex  # tells two otherwise equal requests apart
    purpose: Purpose = ""
    task: Undecoded
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
        if self.privacy.delta * self.minimum_population >= 1.0:
            raise ValueError("delta must be below 1 / minimum_population: " + USELESS_DELTA)
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
    if reason := policy.refusal(
        sharing=request.sharing,
        nodes=nodes,
        colluders=request.privacy.colluders,
        mechanism=request.privacy.mechanism,
        queries=request.terms.query_names,
    ):
        raise RefusedJob(reason)
    batch = request.terms.batch
    if request.smallest_round - request.privacy.dropouts < policy.minimum_cohort:
        what = "minimum_population" if batch is None else "batch"
        raise RefusedJob(f"{what} less dropouts must be at least {policy.minimum_cohort}")
    if batch is not None and batch > request.minimum_population:
        raise RefusedJob("batch may be at most minimum_population")
    if not policy.cap.allows(request.privacy.cost):
        asked, allowed = request.privacy.cap, policy.cap
        raise RefusedJob(f"{asked} exceeds what the policy allows one client: {allowed}")
    if request.round_seconds + request.grace_seconds > policy.maximum_round_seconds:
        raise RefusedJob(
            f"round_seconds + grace_seconds may be at most {policy.maximum_round_seconds}"
        )


def job_refusal(request: JobRequest, limits: TimeLimits, *, now: datetime) -> str | None:
    """Return why a job reaches further ahead of `now` than a policy allows, or None."""
    return limits.too_far(
        "maximum_join_seconds", "join_deadline", request.join_deadline, now
    ) or limits.too_far("maximum_job_seconds", "the job's end", request.ends_by, now)


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
