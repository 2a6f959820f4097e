"""The terms of a job: what its rounds may ask of clients.

The analyst derives the terms from the job's task; trainer and auditor derive them again and compare
(`studies.study.check_terms_of_task`). Data holders read only the terms, and check every round
against them.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from shoal_protocol.queries import GradientSum, Query, QueryName, Tables, VectorSum
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.columns import variables_of
from shoal_protocol.queries.models import InstalledModel
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.errors import RefusedSpec
from shoal_protocol.wire.numbers import Clients, Positive

MOST_ROUNDS: Final = 100_000
TOLERANCE: Final = 1.1e-5  # a step of the sixth digit, to which another machine may round

# what the ranges say of a query, not its equality
_OPEN: Final = {"columns", "radius", "point", "dispersion", "residual_cut", "hazard_cut"}


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
    and scores is always open, and so is how scores are weighted and cut: whatever these are, each
    is clipped, so a client loses no more than the round costs.
    """

    rounds: int = Field(ge=1, le=MOST_ROUNDS)
    query: Query
    recentred: bool
    stretch: Range
    radius: Range | None

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        radius: float | None = getattr(self.query, "radius", None)
        if (radius is None) != (self.radius is None) or not self._allows_radius(self.query):
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
