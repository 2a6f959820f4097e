"""Base classes of studies, and what several of them share.

A study is one module or folder of this package: its task (public parameters alone), the terms of
its rounds, its learner, its posterior and its example. Bounds must come from general knowledge of
the columns, never from the data: nothing here is charged to the privacy budget. Values outside the
bounds are cut to them by the client.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from shoal_protocol.jobs.job_request import AS_STATED, TOLERANCE, Range, RoundTerms, Terms
from shoal_protocol.queries import Column, Query, QueryName
from shoal_protocol.queries.columns import ColumnBounds, ColumnName, Level, variables_of
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.trust.dictionary import Coding, codings_of_terms
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Real
from shoal_protocol.wire.errors import RefusedJob
from shoal_studies.contract import Learner, RequestedRound
from shoal_studies.posteriors.base import BasePosterior


class Study(Model, ABC):
    """A task: the parameters of one study, as a job request carries them.

    A class that gives `name` a default is a study; one that does not is what several share.
    `records_per_client` is how many records a client may hold at most, all of which privacy covers.
    `method_number` says which learner the job is for. Each study has its own as the default, which
    is raised whenever the queries change that its learner asks of the same sums.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]]
    """What a job of the study may end with."""
    example: ClassVar[str]
    """The beginning of a task file in TOML: its parameters and columns."""

    name: str
    records_per_client: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1
    method_number: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1

    @field_validator("method_number")
    @classmethod
    def _is_learned_here(cls, number: int) -> int:
        here = cls.model_fields["method_number"].default
        if number != here:
            raise ValueError(
                f"this release learns by method {here} and not by method {number}: leave "
                "method_number out, or take the release that the job was made for"
            )
        return number

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

    def ends_with(self, posterior: BasePosterior) -> bool:
        """Tell whether a job of the study may end with a posterior of this name and columns."""
        columns = tuple(each.name for each in self.columns)
        return isinstance(posterior, self.posteriors) and posterior.columns == columns

    def asked(self) -> tuple[QueryName, ...]:
        """Return the name of the query of each round, in order."""
        kinds = self.kinds_of_rounds(least=2, most=2)
        return tuple(kind.query.name for kind in kinds for _ in range(kind.rounds))

    def query_names(self) -> tuple[QueryName, ...]:
        """Return the names of the queries that the rounds ask, each once, in order."""
        return tuple(dict.fromkeys(self.asked()))

    def learner(self) -> Learner:
        """Return what carries out the study.

        Raises:
            ValueError: the study's model is needed, and not at hand.
        """
        raise NotImplementedError

    @abstractmethod
    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        """Return the terms of the rounds with `least` to `most` clients, whatever sums turn out.

        Raises:
            ValueError: no query asks this.
        """

    def terms(self, *, least: int, most: int) -> Terms:
        """Return what a job over `least` to `most` clients asks of those who hold data.

        Raises:
            ValueError: no query asks this.
        """
        return Terms(
            bounds=self.columns,
            batch=self.batch,
            kinds=self.kinds_of_rounds(least=least, most=most),
        )


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


def require_features(features: Sequence[ColumnBounds], target: str) -> None:
    """Check the names of a regression's columns.

    Raises:
        ValueError: two are the same, or one is the constant term's.
    """
    names = [feature.name for feature in features]
    if len(set(names)) != len(names):
        raise ValueError("two features have the same name")
    if target in names:
        raise ValueError("the target must not be one of the features")
    if "intercept" in names:
        raise ValueError("no feature may be called 'intercept': the constant term is")


def bounds_read(columns: Iterable[ColumnBounds]) -> Iterator[tuple[str, float, float, bool]]:
    """Yield variables, the bounds to which columns or factors cut them, and if they are levels."""
    for column in columns:
        if column.term is None:
            yield column.name, column.lower, column.upper, False
            continue
        for factor in column.term.factors:
            if isinstance(factor, Level):
                yield factor.variable, 0.0, max(1.0, factor.value), True
            else:
                yield factor.variable, factor.lower, factor.upper, False


def require_due(task: Study, population: int, sums: Sequence[ReleasedSum]) -> None:
    """Check that `sums` answer the first of a task's rounds, in order.

    Raises:
        ValueError: `population` is not positive, or `sums` do not answer them.
    """
    if population < 1:
        raise ValueError("the population must be positive")
    names, rounds = [each.name for each in task.columns], task.asked()
    if len(sums) > len(rounds) or any(
        released.query.name != name
        or released.query.records_per_client != task.records_per_client
        or [each.name for each in released.query.columns] != names
        for released, name in zip(sums, rounds, strict=False)
    ):
        raise ValueError("the sums are not those of this task's rounds, in order")


def round_terms(
    query: Query,
    *,
    rounds: int = 1,
    recentred: bool = False,
    stretch: Range = AS_STATED,
    radius: Range | None = None,
) -> RoundTerms:
    """Return the terms of rounds that ask `query` but for this; `radius` None is its own alone."""
    own: float | None = getattr(query, "radius", None)
    if radius is None and own is not None:
        radius = Range(least=own, most=own)
    return RoundTerms(
        rounds=rounds, query=query, recentred=recentred, stretch=stretch, radius=radius
    )


COUNT_BITS: Final = 20
"""Of the grid of counts."""
SUM_BITS: Final = 15
"""Of the grid of first moments."""
_FARTHEST: Final = 1e6  # half ranges of a column: what a prior may be about

Pseudocount = Annotated[float, Field(ge=1e-3, le=1e6, allow_inf_nan=False)]
Concentration = Annotated[float, Field(ge=0.05, le=1e6, allow_inf_nan=False)]
"""A pseudocount of a cell: of smaller ones quantiles are not computed well enough."""
Labels = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(max_length=255)
]
"""What levels are called, in their order; none where they are called by their numbers."""


class WholeStudy(Study):
    """A study of which every round asks all clients that joined."""

    @property
    def batch(self) -> int | None:
        """How many clients a round asks: None, for all that joined."""
        return None


class FixedStudy(WholeStudy):
    """A study whose number of rounds follows from its terms: it is no parameter."""

    @property
    def rounds(self) -> int:
        """How many rounds the job has."""
        return len(self.asked())


class OneRoundStudy(FixedStudy):
    """A study of one round."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.query()  # its bounds, and names that are distinct
        return self

    @property
    def fewest_clients(self) -> int:
        """The smallest population that the study is made for."""
        return 1

    @abstractmethod
    def query(self) -> Query:
        """Return the query of the only round, which carries the number of records."""

    @abstractmethod
    def posterior_from(self, released: ReleasedSum) -> BasePosterior:
        """Return the posterior from the sum of the only round."""

    def learner(self) -> Learner:
        return OneRound(self)

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        """Return the terms of the only round: nothing is left open."""
        return (round_terms(self.query()),)

    def _query_columns(self) -> tuple[Column, ...]:
        return tuple(bounds.column() for bounds in self.columns)


@dataclass(frozen=True)
class OneRound:
    """The learner of a study of one round, whose sum alone gives the posterior."""

    task: OneRoundStudy

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | BasePosterior:
        """Return the round, or the posterior when `sums` hold it.

        Raises:
            ValueError: `population` is too small, or `sums` do not answer this task's round.
        """
        if population < self.task.fewest_clients:
            raise ValueError(f"this study needs {self.task.fewest_clients} clients or more")
        query = self.task.query()
        match sums:
            case []:
                return RequestedRound(query=query, share=1.0)
            case [released] if released.query == query:
                return self.task.posterior_from(released)
        raise ValueError("the sums are not those of this task's round")


class EventStudy(WholeStudy):
    """A study of when events happen, in intervals of time.

    A record's `time` is that of its event where `event` is 1, or is `event_value`, else when it was
    last seen without one. There are `intervals` of one width between the bounds of `time`, or those
    between `edges`.
    """

    time: ColumnBounds
    event: ColumnName
    event_value: Real | None = None
    intervals: Annotated[int, Field(ge=1, le=1000, strict=True)]
    edges: tuple[Real, ...] | None = None

    @model_validator(mode="after")
    def _times_are_usable(self) -> Self:
        if self.time.lower < 0.0:
            raise ValueError("the lower bound of a time must be 0 or above: it counts from there")
        ends = (self.time.lower, self.time.upper)
        if self.edges is not None and (self.edges[0], self.edges[-1]) != ends:
            raise ValueError("edges begin and end where the bounds of time do")
        return self

    @property
    def times(self) -> tuple[float, ...]:
        """The edges of the intervals, from the bounds' lower end to the upper one."""
        if self.edges is not None:
            return self.edges
        return tuple(np.linspace(self.time.lower, self.time.upper, self.intervals + 1).tolist())


def spanning(name: str, levels: Sequence[float]) -> ColumnBounds:
    """Return the bounds of a column from the least of its levels to the largest."""
    return ColumnBounds(name=name, lower=min(levels), upper=max(levels))


def called(levels: Sequence[float], labels: Sequence[str]) -> tuple[str, ...]:
    """Return what levels are called: by their labels, if there are any.

    Raises:
        ValueError: labels are not one for each, or two are the same.
    """
    if not labels:
        return tuple(f"{level:.15g}" for level in levels)
    if len(labels) != len(levels) or len(set(labels)) != len(labels):
        raise ValueError("labels are one for each level, and different")
    return tuple(labels)


def and_others(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of levels, and of all other values."""
    return (*names, own_label("other", "any other", names))


def own_label(label: str, instead: str, names: Sequence[str]) -> str:
    """Return a label beside the `names` of levels: `instead`, where a level has the label."""
    while label in names:
        label, instead = instead, f"any {instead}"
    return label


def require_near(
    columns: Sequence[ColumnBounds],
    means: Sequence[float | None],
    sds: Sequence[float | None],
) -> None:
    """Refuse hyperparameters that a float cannot hold beside the columns' bounds.

    Raises:
        ValueError: a mean is too far from the bounds, or a standard deviation too unlike them.
    """
    for column, mean in zip(columns, means, strict=True):
        if mean is not None and abs(mean - column.centre) > _FARTHEST * column.half_range:
            raise ValueError("a prior mean is farther from the bounds than a million half ranges")
    for column, sd in zip(columns, sds, strict=True):
        if sd is not None and not 1.0 / _FARTHEST <= sd / column.half_range <= _FARTHEST:
            raise ValueError("a standard deviation is not within a million times of half a range")
