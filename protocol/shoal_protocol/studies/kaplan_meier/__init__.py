"""Survival by Kaplan and Meier, and the log-rank test, from counts over intervals of time."""

from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior
from shoal_protocol.queries import Axis, EdgeCut, LevelCut, Table, Tables
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.columns import ColumnName
from shoal_protocol.studies.cells import TABLE_BITS, TabulatingStudy, indicator_of
from shoal_protocol.studies.kaplan_meier.posterior import KaplanMeierPosterior, LogRank
from shoal_protocol.studies.one_round import Labels, OneRoundStudy, called, spanning
from shoal_protocol.trust.codings import Coding, codings_of_events
from shoal_protocol.wire.numbers import Real

__all__ = ["KaplanMeierPosterior", "KaplanMeierTask", "LogRank"]

MOST_INTERVALS: Final = 128


class KaplanMeierTask(TabulatingStudy, OneRoundStudy):
    """How many are without an event until when, and whether groups differ.

    A record's `time` is that of its event where `event` is 1, or is `event_value`, else when it was
    last seen without one. It is counted in `intervals` of one width between the bounds of `time`,
    or between `edges`, and beyond the last: more intervals tell times apart better, and add noise.
    With `group` there is a curve for each of its `levels`, which `labels` may name, and a test of
    whether they are one. Who lacks a value is in no curve; values of `indicators` are missing where
    the column NAME_missing is 1. A client has one record at most.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (KaplanMeierPosterior,)
    example: ClassVar[str] = """\
[task]
name = "kaplan_meier"
event = "died"                 # 1 where the time is that of an event, or
# event_value = 2              # what it is there
group = "treatment"            # optional, with its levels
levels = [0, 1]
intervals = 24
smallest_cell = 5              # nothing is shown from when on fewer may be at risk

[columns]                      # the time, and its public bounds, never from the data
weeks = [0, 120]

"""

    name: Literal["kaplan_meier"] = "kaplan_meier"
    records_per_client: Annotated[int, Field(ge=1, le=1, strict=True)] = 1
    time: ColumnBounds
    event: ColumnName
    event_value: Real | None = None
    group: ColumnName | None = None
    levels: Annotated[tuple[Real, ...], Field(max_length=8)] = ()
    labels: Labels = ()
    intervals: Annotated[int, Field(ge=2, le=MOST_INTERVALS, strict=True)] = 24
    edges: (
        Annotated[tuple[Real, ...], Field(min_length=3, max_length=MOST_INTERVALS + 1)] | None
    ) = None
    indicators: tuple[ColumnName, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.group is None) != (not self.levels) or len(self.levels) == 1:
            raise ValueError("a group has two levels or more, and levels are of a group")
        called(self.levels, self.labels)
        if self.time.lower < 0.0:
            raise ValueError("the lower bound of a time must be 0 or above: it counts from there")
        ends = (self.time.lower, self.time.upper)
        if self.edges is not None and (self.edges[0], self.edges[-1]) != ends:
            raise ValueError("edges begin and end where the bounds of time do")
        if not set(self.indicators) <= {self.time.name, self.event, self.group}:
            raise ValueError("indicators are names of time, event or group")
        self.query()
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """Time, event, group, and the indicators of their missing values."""
        value = self._happened
        event = ColumnBounds(name=self.event, lower=min(value, 0.0), upper=max(value, 1.0))
        group = () if self.group is None else (spanning(self.group, self.levels),)
        return (self.time, event, *group, *map(indicator_of, self.indicators))

    @property
    def codings(self) -> tuple[Coding, ...]:
        group = () if self.group is None else (Coding(self.group, "levels", self.levels),)
        return (*codings_of_events(self.time, self.event, self.event_value), *group)

    @property
    def _happened(self) -> float:
        return 1.0 if self.event_value is None else self.event_value

    @property
    def times(self) -> tuple[float, ...]:
        """The edges of the intervals, from the bounds' lower end to the upper one."""
        if self.edges is not None:
            return self.edges
        return tuple(np.linspace(self.time.lower, self.time.upper, self.intervals + 1).tolist())

    def query(self) -> Tables:
        """Return the query of the only round: one table of group, interval and event."""
        names = [each.name for each in self.columns]

        def indicator(name: str) -> int | None:
            return names.index(f"{name}_missing") if name in self.indicators else None

        beyond = self.time.upper + (self.time.upper - self.time.lower)
        cuts: list[EdgeCut | LevelCut] = [
            EdgeCut(column=0, indicator=indicator(self.time.name), edges=(*self.times, beyond)),
            LevelCut(column=1, indicator=indicator(self.event), levels=(self._happened,)),
        ]
        axes = [Axis(cut=0), Axis(cut=1)]
        if self.group is not None:
            cuts.append(LevelCut(column=2, indicator=indicator(self.group), levels=self.levels))
            axes.insert(0, Axis(cut=2))
        return Tables(
            columns=self._query_columns(),
            cuts=tuple(cuts),
            tables=(Table(axes=tuple(axes)),),
            grid_bits=TABLE_BITS,
            records_per_client=self.records_per_client,
        )
