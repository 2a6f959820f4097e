"""Base class of all studies: parameters, terms of the rounds, kinds of posterior, an example.

A study is one module of this package, with its task (public parameters only, no data and no
algorithm), its rules for rounds and its posterior. Bounds must come from general knowledge of the
columns, never from the data: nothing here is charged to the privacy budget. Values outside the
bounds are cut to them by the client.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from shoal_protocol.jobs.terms import TOLERANCE, RoundTerms, Terms
from shoal_protocol.posteriors.base import BasePosterior
from shoal_protocol.queries import Query, QueryName
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.columns import variables_of
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.trust.codings import Coding, codings_of_terms
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.errors import RefusedJob, RefusedSpec


class Study(Model, ABC):
    """A task: the parameters of one study, as a job request carries them.

    A class that gives `name` a default is a study; one that does not is what several share.
    `records_per_client` is how many records a client may hold at most, all of which privacy covers.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]]
    """What a job of the study may end with."""
    example: ClassVar[str]
    """The beginning of a task file in TOML: its parameters and columns."""

    name: str
    records_per_client: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1

    if TYPE_CHECKING:  # fields of some studies, so pydantic must not find properties here

        @property
        def columns(self) -> tuple[ColumnBounds, ...]:
            """The columns of a client's records, in order."""

        @property
        def rounds(self) -> int:
            """How many rounds the job has."""

        @property
        def batch(self) -> int | None:
            """How many clients a round asks; None for all that joined."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the variables of a client's records that the rounds read, in order."""
        return variables_of(self.columns)

    @property
    def codings(self) -> tuple[Coding, ...]:
        """How the variables are coded that are not just numbers within bounds."""
        return codings_of_terms(each.term for each in self.columns)

    @property
    def coded_event(self) -> str | None:
        """The variable that is 1 where an event was, and else 0; None if none need be."""
        coded = (each.variable for each in self.codings if each.kind == "event" and not each.values)
        return next(coded, None)

    @property
    def posterior_names(self) -> tuple[str, ...]:
        """The kinds of posterior that the job may end with."""
        return tuple(str(each.model_fields["name"].default) for each in self.posteriors)

    @property
    def fewest_shown(self) -> int:
        """How many records a cell of a table holds at least, if it is shown."""
        return 0

    @abstractmethod
    def participations(self, population: int) -> int:
        """Return how many rounds one client of so many may be asked in, at most."""

    @abstractmethod
    def query_name(self, number: int) -> QueryName:
        """Return the name of the query that round `number` asks."""

    @abstractmethod
    def query_names(self) -> tuple[QueryName, ...]:
        """Return the names of the queries that the rounds ask, in order."""

    @abstractmethod
    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        """Return the terms of the rounds with `least` to `most` clients, whatever sums turn out.

        Raises:
            ValueError: no query asks this.
        """

    @abstractmethod
    def check_query(
        self, query: Query, *, number: int, population: int, earlier: Sequence[ReleasedSum]
    ) -> None:
        """Refuse a query of the name due that round `number` does not ask otherwise.

        Raises:
            RefusedSpec: the detail says why.
        """

    def terms(self, *, least: int, most: int) -> Terms:
        """Return what a job over `least` to `most` clients asks of those who hold data.

        Raises:
            ValueError: no query asks this.
        """
        kinds = self.kinds_of_rounds(least=least, most=most)
        return Terms(
            bounds=self.columns, batch=self.batch, smallest_cell=self.fewest_shown, kinds=kinds
        )


def check_round_rules(
    query: Query,
    task: Study,
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
    task.check_query(query, number=number, population=population, earlier=earlier)


def check_terms_of_task(terms: Terms, task: Study, *, least: int, most: int) -> None:
    """Refuse terms that are not those of the task.

    Raises:
        RefusedJob: they are not, or no query asks what the task does.
    """
    try:
        due = task.terms(least=least, most=most)
    except ValueError as error:
        raise RefusedJob("no query asks what the task does") from error
    if not _alike(terms.model_dump(), due.model_dump()):
        raise RefusedJob("its terms are not those of its task")


def _alike(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are the same, but for the rounding of numbers with a point."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= TOLERANCE * max(abs(one), abs(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    return type(one) is type(other) and bool(one == other)
