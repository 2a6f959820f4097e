"""Hazard ratios from piecewise exponential regression, in five rounds of everybody."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.jobs.terms import RoundTerms
from shoal_protocol.posteriors.base import BasePosterior
from shoal_protocol.queries import Query, QueryName
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.columns import ColumnName
from shoal_protocol.queries.hazards import MOST_INTERVALS
from shoal_protocol.queries.terms import Level, Term
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.piecewise_exponential import round_rules
from shoal_protocol.studies.piecewise_exponential.posterior import PiecewiseExponentialPosterior
from shoal_protocol.studies.study import Study
from shoal_protocol.trust.codings import Coding, codings_of_events
from shoal_protocol.wire.numbers import Real

__all__ = ["PiecewiseExponentialPosterior", "PiecewiseExponentialTask"]


class PiecewiseExponentialTask(Study):
    """How `features` multiply the hazard of an event, which is constant in each interval of time.

    A record's `time` is that of its event where `event` is 1, or is `event_value`, else when it was
    last seen without one. There are `intervals` of one width between the bounds of `time`, or
    between `edges`; what is later than the last of them is left out. Hazard ratios are those of
    Cox's regression, but for what the baseline hazard changes within an interval (Holford 1980;
    Laird and Olivier 1981).

    A first round measures centres and spreads, a second the features' moments, and three rounds
    release events, hazards and scores, each where those before lead to. `prior_sd` is the prior
    standard deviation of a log hazard ratio, for one standard deviation of the feature.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (PiecewiseExponentialPosterior,)
    example: ClassVar[str] = """\
[task]
name = "piecewise_exponential_regression"
event = "died"                 # 1 where the time is that of an event, or
# event_value = 2              # what it is there
intervals = 8

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
treatment = [0, 1]

[columns]                      # the time, from where records are at risk
weeks = [0, 120]

"""

    name: Literal["piecewise_exponential_regression"] = "piecewise_exponential_regression"
    features: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=250)]
    time: ColumnBounds
    event: ColumnName
    event_value: Real | None = None
    intervals: Annotated[int, Field(ge=1, le=MOST_INTERVALS, strict=True)] = 8
    edges: (
        Annotated[tuple[Real, ...], Field(min_length=2, max_length=MOST_INTERVALS + 1)] | None
    ) = None
    prior_sd: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 2.5

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [each.name for each in self.columns]
        if len(set(names)) != len(names):
            raise ValueError("features, time and event have different names")
        if self.time.lower < 0.0:
            raise ValueError("the lower bound of a time must be 0 or above: it counts from there")
        ends = (self.time.lower, self.time.upper)
        if self.edges is not None and (self.edges[0], self.edges[-1]) != ends:
            raise ValueError("edges begin and end where the bounds of time do")
        round_rules.kinds_of_rounds(self)
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The features in order, then time and event: the columns of a client's records."""
        value, term = self.event_value, None
        if value is not None:
            term = Term(factors=(Level(variable=self.event, value=value),))
        event = ColumnBounds(name=self.event, lower=0.0, upper=1.0, term=term)
        return (*self.features, self.time, event)

    @property
    def codings(self) -> tuple[Coding, ...]:
        events = codings_of_events(self.time, self.event, self.event_value)
        return (*super().codings, *events)

    @property
    def times(self) -> tuple[float, ...]:
        """The edges of the intervals, from the bounds' lower end to the upper one."""
        if self.edges is not None:
            return self.edges
        return tuple(np.linspace(self.time.lower, self.time.upper, self.intervals + 1).tolist())

    @property
    def rounds(self) -> int:
        """How many rounds the job has: five."""
        return len(round_rules.ASKED)

    @property
    def batch(self) -> int | None:
        """How many clients a round asks; None for all that joined."""
        return None

    def participations(self, population: int) -> int:
        return self.rounds

    def query_name(self, number: int) -> QueryName:
        return round_rules.ASKED[number]

    def query_names(self) -> tuple[QueryName, ...]:
        return tuple(dict.fromkeys(round_rules.ASKED))

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        return round_rules.kinds_of_rounds(self)

    def check_query(
        self, query: Query, *, number: int, population: int, earlier: Sequence[ReleasedSum]
    ) -> None:
        self.terms(least=2, most=2).check(query, number=number)
