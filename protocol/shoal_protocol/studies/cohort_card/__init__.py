"""A cohort card: the 'Table 1' of a study, from tables of counts in one round."""

import math
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior
from shoal_protocol.queries import Axis, EdgeCut, LevelCut, Table, Tables
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.columns import ColumnName
from shoal_protocol.studies.cells import TABLE_BITS, TabulatingStudy, indicator_of
from shoal_protocol.studies.cohort_card.posterior import CohortCardPosterior
from shoal_protocol.studies.one_round import Labels, OneRoundStudy, called, spanning
from shoal_protocol.trust.codings import Coding
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.numbers import Real

__all__ = ["CategoryVariable", "CohortCardPosterior", "CohortCardTask", "NumberVariable"]

BRANCHES: Final = 4
"""Nodes of one width in a node of the next larger one; a cross table has so many of a number."""

_Weight = Annotated[float, Field(ge=0.01, le=100.0)]


class _Variable(Model):
    """A variable of the card. A larger `weight` buys it less noise, at the others' expense.

    With `indicator` its value is missing where the column `NAME_missing` is 1, as the data
    dictionary has it; a value that is no number is missing in any case.
    """

    name: ColumnName
    indicator: bool = False
    weight: _Weight = 1.0

    @property
    def scale(self) -> float:
        """What the noise of its tables is multiplied by."""
        return 1.0 / math.sqrt(self.weight)


class NumberVariable(_Variable):
    """A number, counted in `bins` of one width between public bounds, and in fewer, wider ones."""

    kind: Literal["number"] = "number"
    lower: Real
    upper: Real
    bins: Literal[4, 16, 64, 256, 1024] = 256

    @model_validator(mode="after")
    def _usable(self) -> Self:
        self.bounds  # noqa: B018 - the same rules as of every column
        return self

    @property
    def bounds(self) -> ColumnBounds:
        """The public bounds."""
        return ColumnBounds(name=self.name, lower=self.lower, upper=self.upper)

    @property
    def edges(self) -> tuple[float, ...]:
        """The edges of the bins, ascending."""
        return tuple(np.linspace(self.lower, self.upper, self.bins + 1).tolist())

    def cut(self, column: int, *, indicator: int | None) -> EdgeCut:
        """Return the cut of the query's `column`."""
        return EdgeCut(column=column, indicator=indicator, edges=self.edges)

    @property
    def widths(self) -> tuple[int, ...]:
        """How many bins a node has, of each table of the variable, coarse ones first."""
        depth = round(math.log(self.bins, BRANCHES))
        return tuple(BRANCHES**level for level in reversed(range(depth)))


class CategoryVariable(_Variable):
    """A value that is one of the public `levels`, which `labels` may name, or another."""

    kind: Literal["category"] = "category"
    levels: Annotated[tuple[Real, ...], Field(min_length=2, max_length=255)]
    labels: Labels = ()

    @model_validator(mode="after")
    def _named(self) -> Self:
        self.names  # noqa: B018 - as many as levels
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """What the levels are called."""
        return called(self.levels, self.labels)

    @property
    def bounds(self) -> ColumnBounds:
        """From the least level to the largest."""
        return spanning(self.name, self.levels)

    def cut(self, column: int, *, indicator: int | None) -> LevelCut:
        """Return the cut of the query's `column`."""
        return LevelCut(column=column, indicator=indicator, levels=self.levels)

    @property
    def widths(self) -> tuple[int, ...]:
        """One table of the cells as they are."""
        return (1,)


Variable = Annotated[NumberVariable | CategoryVariable, Field(discriminator="kind")]


class CohortCardTask(TabulatingStudy, OneRoundStudy):
    """Counts, missing values, means, spreads, quantiles and histograms of `variables`.

    `crosses` name two or three variables each; a number has four bins there. All statements are of
    the records that there are, and intervals of what noise hides of them. The price is split evenly
    over the tables, of which a number has one for each power of four up to its `bins`, but by the
    variables' weights and `cross_weight`. A client has one record at most.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (CohortCardPosterior,)
    example: ClassVar[str] = """\
[task]
name = "cohort_card"
smallest_cell = 5              # what may be fewer records is not shown
quantiles = [0.25, 0.5, 0.75]
crosses = [["sex", "stage"]]

[[task.variables]]             # public bounds and levels, never from the data
kind = "number"
name = "age"
lower = 18
upper = 100
bins = 64                      # 4, 16, 64, 256 or 1024

[[task.variables]]
kind = "category"
name = "sex"
levels = [0, 1]                # of a text: its places in the data dictionary, from 0
labels = ["female", "male"]    # what they are called; may be left out

[[task.variables]]
kind = "category"
name = "stage"
levels = [1, 2, 3, 4]
"""

    name: Literal["cohort_card"] = "cohort_card"
    records_per_client: Annotated[int, Field(ge=1, le=1, strict=True)] = 1
    variables: Annotated[tuple[Variable, ...], Field(min_length=1, max_length=128)]
    quantiles: Annotated[
        tuple[Annotated[float, Field(gt=0.0, lt=1.0)], ...], Field(max_length=9)
    ] = (0.25, 0.5, 0.75)
    crosses: Annotated[
        tuple[Annotated[tuple[ColumnName, ...], Field(min_length=2, max_length=3)], ...],
        Field(max_length=64),
    ] = ()
    cross_weight: _Weight = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        places = self._places
        if len(places) != len(self.variables):
            raise ValueError("two variables have the same name")
        for cross in self.crosses:
            if len(set(cross)) != len(cross) or not set(cross) <= places.keys():
                raise ValueError("a cross table is over two or three different variables")
        if len(set(self.quantiles)) != len(self.quantiles) or len(set(self.crosses)) != len(
            self.crosses
        ):
            raise ValueError("two quantiles or two cross tables are the same")
        self.query()  # its bounds on cells, and names that are distinct
        return self

    @property
    def _places(self) -> dict[str, int]:
        return {each.name: place for place, each in enumerate(self.variables)}

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The variables, then the indicators of their missing values."""
        flagged = (indicator_of(each.name) for each in self.variables if each.indicator)
        return (*(each.bounds for each in self.variables), *flagged)

    @property
    def codings(self) -> tuple[Coding, ...]:
        counted = (each for each in self.variables if isinstance(each, CategoryVariable))
        return tuple(Coding(each.name, "levels", each.levels) for each in counted)

    def query(self) -> Tables:
        """Return the query of the only round: each variable's tables in turn, then the crosses."""
        cuts: list[EdgeCut | LevelCut] = []
        tables, flags = [], len(self.variables)
        for place, each in enumerate(self.variables):
            cuts.append(each.cut(place, indicator=flags if each.indicator else None))
            flags += each.indicator
            for width in each.widths:
                tables.append(Table(axes=(Axis(cut=place, merged=width),), scale=each.scale))
        crossed = 1.0 / math.sqrt(self.cross_weight)
        for cross in self.crosses:
            axes = tuple(self._crossed(self._places[name]) for name in cross)
            tables.append(Table(axes=axes, scale=crossed))
        return Tables(
            columns=self._query_columns(),
            cuts=tuple(cuts),
            tables=tuple(tables),
            grid_bits=TABLE_BITS,
            records_per_client=self.records_per_client,
        )

    def _crossed(self, place: int) -> Axis:
        variable = self.variables[place]
        merged = variable.bins // BRANCHES if isinstance(variable, NumberVariable) else 1
        return Axis(cut=place, merged=merged)
