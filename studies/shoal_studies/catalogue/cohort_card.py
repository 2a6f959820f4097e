"""Cohort cards: a summary of each variable, and tables of two, from noisy tables."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.queries import Axis, EdgeCut, LevelCut, Table, Tables
from shoal_protocol.queries.columns import ColumnBounds, ColumnName
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import tables_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.trust.dictionary import Coding
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Count, Finite, Real
from shoal_studies.catalogue.measurements import noisy_count, query_of
from shoal_studies.catalogue.study import (
    Labels,
    OneRoundStudy,
    and_others,
    called,
    own_label,
    spanning,
)
from shoal_studies.catalogue.tabulated import (
    TABLE_BITS,
    Below,
    TabulatingStudy,
    fitted,
    indicator_of,
    nested,
)
from shoal_studies.posteriors.base import LEVEL, BasePosterior
from shoal_studies.posteriors.forms import (
    REACHES,
    Known,
    KnownQuantile,
    Number,
    NumbersPosterior,
    reach_of,
)

_Cells = tuple[Known | None, ...]

_MANY: Final = 0.25
_NEARLY_ALL: Final = 0.9
_SURELY: Final = 2.0  # standard deviations of noise


class NumberCard(Model):
    """What is known of a number. `bars` are counts between `edges`; None is not shown.

    `average` and `variance` are none where too few records have a value, and `variance` also where
    noise hides it.
    """

    kind: Literal["number"] = "number"
    name: str
    present: Known
    missing: Known | None
    average: Known | None
    variance: Known | None
    quantiles: tuple[KnownQuantile, ...]
    edges: Annotated[tuple[Finite, ...], Field(min_length=2)]
    bars: _Cells
    missing_label: ClassVar[str] = "missing"

    def at_bounds(self) -> list[tuple[str, float]]:
        """Return the first and the last bar, if a quarter of the values or more are surely in it.

        Each with the least share that noise leaves likely. Values beyond the bounds are there.
        """
        most = self.present.mean + _SURELY * self.present.sd
        labels, ends = bin_labels(self.edges), []
        for place in (0, -1):
            bar = self.bars[place]
            share = 0.0 if bar is None else (bar.mean - _SURELY * bar.sd) / max(most, 1.0)
            if share >= _MANY:
                ends.append((labels[place], share))
        return ends


class CategoryCard(Model):
    """What is known of a category: counts of its levels, then of all other values."""

    kind: Literal["category"] = "category"
    name: str
    present: Known
    missing: Known | None
    levels: tuple[Finite, ...]
    labels: Labels = ()
    counts: _Cells

    @property
    def names(self) -> tuple[str, ...]:
        """What the counts are of."""
        return and_others(called(self.levels, self.labels))

    @property
    def missing_label(self) -> str:
        """What the count of missing values is called."""
        return own_label("missing", "value missing", self.names)


class CrossCard(Model):
    """Counts of all combinations of the `labels` of some variables, the last one's fastest."""

    variables: Annotated[tuple[str, ...], Field(min_length=2, max_length=3)]
    labels: tuple[tuple[str, ...], ...]
    counts: _Cells

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if len(self.counts) != math.prod(map(len, self.labels)):
            raise ValueError("there is one count for each combination of labels")
        return self

    def cells(self) -> Iterator[tuple[str, Known | None]]:
        """Yield the counts with what they are of."""
        shape = tuple(map(len, self.labels))
        for place, count in enumerate(self.counts):
            chosen = np.unravel_index(place, shape)
            parts = zip(self.variables, self.labels, chosen, strict=True)
            yield " × ".join(f"{name} {labels[at]}" for name, labels, at in parts), count


class CohortCardPosterior(NumbersPosterior):
    """Counts, means, spreads and quantiles of the records that there are, seen through noise.

    Intervals are of noise alone: what all of the cohort's records would show lies in them. A count
    is none where fewer than `smallest_cell` records may be behind it. Draws are of each number by
    itself. With Laplace noise intervals are as wide as a single Laplace variable's.
    """

    name: Literal["cohort_card"] = "cohort_card"
    columns: tuple[str, ...]
    smallest_cell: Count
    cards: Annotated[
        tuple[Annotated[NumberCard | CategoryCard, Field(discriminator="kind")], ...],
        Field(min_length=1),
    ]
    crosses: tuple[CrossCard, ...]

    @cached_property
    def numbers(self) -> list[Number]:
        counts = (0.0, math.inf)
        found = [Number("records", self.total, counts)]

        def add(label: str, known: Known | None, whole: Known | None = None) -> None:
            if known is not None:
                found.append(Number(label, known, counts, whole))

        for card in self.cards:
            if isinstance(card, NumberCard):
                bounds = (card.edges[0], card.edges[-1])
                if card.average is not None:
                    found.append(Number(f"{card.name}: mean", card.average, bounds))
                if card.variance is not None:
                    most = (0.0, (bounds[1] - bounds[0]) ** 2 / 4.0)
                    found.append(Number(f"{card.name}: sd", card.variance, most, is_root=True))
                for each in card.quantiles:
                    label, middle = f"{card.name}: quantile {each.level:g}", len(REACHES) // 2
                    known = Known(mean=each.points[middle], sd=0.0)
                    found.append(Number(label, known, bounds, points=each.points))
                cells = list(zip(bin_labels(card.edges), card.bars, strict=True))
            else:
                cells = list(zip(card.names, card.counts, strict=True))
            # shares of counts that noise made too large, or of none, still add up to 1
            shown = sum(max(count.mean, 0.0) for _, count in cells if count is not None)
            whole = card.present.model_copy(update={"mean": max(card.present.mean, shown)})
            for label, count in cells:
                add(f"{card.name}: {label}", count, whole)
            add(f"{card.name}: {card.missing_label}", card.missing, self.total)
        for cross in self.crosses:
            for label, count in cross.cells():
                add(label, count, self.total)
        return found

    @property
    def withheld(self) -> int:
        """How many counts are not shown."""
        return sum(count is None for count in self._counts())

    def _counts(self) -> Iterator[Known | None]:
        for card in self.cards:
            yield card.missing
            yield from card.bars if isinstance(card, NumberCard) else card.counts
        for cross in self.crosses:
            yield from cross.counts

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        unknown = [
            card.name
            for card in self.cards
            if isinstance(card, NumberCard) and card.average is not None and card.variance is None
        ]
        hidden = f"{self.withheld:,} counts, which may be of fewer than {self.smallest_cell:,}"
        return (
            (
                "Intervals",
                "account for the noise alone: of these records, and not of others like them",
            ),
            *([("Not shown", hidden)] if self.withheld else []),
            *(
                [("Not known", f"the sd of {', '.join(unknown)}: noise hides it")]
                if unknown
                else []
            ),
            *(
                (
                    "At a bound or beyond",
                    f"perhaps, of {name}: {share:.0%} of the values or more are in {label}",
                )
                for name, label, share in self._at_bounds()
            ),
        )

    @property
    def caution(self) -> str | None:
        found = [
            f"{name} ({label})" for name, label, share in self._at_bounds() if share >= _NEARLY_ALL
        ]
        if not found:
            return None
        said = ", ".join(found)
        return f"nearly all values are in the first or the last bin, {said}: is the unit right?"

    def _at_bounds(self) -> list[tuple[str, str, float]]:
        cards = [card for card in self.cards if isinstance(card, NumberCard)]
        return [(card.name, *end) for card in cards for end in card.at_bounds()]

    @property
    def _listed(self) -> list[Number]:
        bins = {
            f"{card.name}: {label}"
            for card in self.cards
            if isinstance(card, NumberCard)
            for label in bin_labels(card.edges)
        }
        return [each for each in self.numbers if each.label not in bins]


def bin_labels(edges: Sequence[float]) -> list[str]:
    """Return names of the bins between ascending edges."""
    return [f"[{low:.6g}, {high:.6g})" for low, high in pairwise(edges)]


BRANCHES: Final = 4
"""Nodes of one width in a node of the next larger one; a cross table has so many of a number."""


class _Variable(Model):
    """A variable of the card.

    With `indicator` its value is missing where the column `NAME_missing` is 1, as the data
    dictionary has it; a value that is no number is missing in any case.
    """

    name: ColumnName
    indicator: bool = False


class NumberVariable(_Variable):
    """A number, counted in `bins` of one width between public bounds, and in fewer, wider ones."""

    kind: Literal["number"] = "number"
    lower: Real
    upper: Real
    bins: Literal[4, 16, 64, 256, 1024] = 256

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
    over the tables, of which a number has one for each power of four up to its `bins`. A client has
    one record at most.
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
            tables += [Table(axes=(Axis(cut=place, merged=width),)) for width in each.widths]
        for cross in self.crosses:
            axes = tuple(self._crossed(self._places[name]) for name in cross)
            tables.append(Table(axes=axes))
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

    def posterior_from(self, released: ReleasedSum) -> CohortCardPosterior:
        return _Card(self, released).posterior()


_BARS: Final = 16
_CLEAR: Final = 1.5  # a variance over the half width of its interval


class _Card:
    def __init__(self, task: CohortCardTask, released: ReleasedSum) -> None:
        query = query_of(released, Tables)
        self._task, self._query = task, query
        self._total, self._total_sd = noisy_count(released)
        sds = tables_from(query, released.noise_sd)
        self._counts = [
            (counts, float(sd[0]))
            for counts, sd in zip(
                tables_from(query, released.values.astype(float)), sds, strict=True
            )
        ]
        self._mechanism = released.mechanism
        self._reach = reach_of(LEVEL, released.mechanism)

    def posterior(self) -> CohortCardPosterior:
        rest = iter(self._counts)
        return CohortCardPosterior.of(
            cards=tuple(
                self._number(each, rest)
                if isinstance(each, NumberVariable)
                else self._category(each, *next(rest))
                for each in self._task.variables
            ),
            crosses=tuple(
                self._cross(names, *found)
                for names, found in zip(self._task.crosses, rest, strict=True)
            ),
            records=max(1, round(self._total)),
            total=Known(mean=self._total, sd=self._total_sd),
            mechanism=self._mechanism,
            columns=tuple(each.name for each in self._task.columns),
            smallest_cell=self._task.smallest_cell,
        )

    def _shown(self, mean: float, sd: float) -> Known | None:
        return self._task.shown(mean, sd, reach=self._reach)

    def _category(self, variable: CategoryVariable, cells: Floats, sd: float) -> CategoryCard:
        cells, left = fitted(cells, sd, self._total, self._total_sd)
        *counts, missing = (self._shown(each, left) for each in cells.tolist())
        levels, share = len(counts), 1.0 - (left / sd) ** 2  # of the gap, that each cell took
        present_sd = sd * math.sqrt(levels * (1.0 - levels * share))
        return CategoryCard(
            name=variable.name,
            present=Known(mean=float(cells[:-1].sum()), sd=present_sd),
            missing=missing,
            levels=variable.levels,
            labels=variable.labels,
            counts=tuple(counts),
        )

    def _number(
        self, variable: NumberVariable, tables: Iterator[tuple[Floats, float]]
    ) -> NumberCard:
        edges = np.array(variable.edges)
        histograms = [(edges[::width], *next(tables)) for width in variable.widths]
        law, missing = nested(histograms, self._total, self._total_sd)
        average, spread = _moments(law)
        is_told = law.tells(reach=self._reach, smallest=self._task.smallest_cell)
        is_hidden = spread.mean < _CLEAR * self._reach * spread.sd
        width = max(variable.bins // _BARS, 1)
        ends = np.arange(variable.bins) < width
        bar_sd = law.sd(ends.astype(np.float64))  # that of all of them
        return NumberCard(
            name=variable.name,
            present=law.present,
            missing=self._shown(missing.mean, missing.sd),
            average=average if is_told else None,
            variance=spread if is_told and not is_hidden else None,
            quantiles=law.quantiles(self._task.quantiles if is_told else ()),
            edges=tuple(edges[::width].tolist()),
            bars=tuple(
                self._shown(each, bar_sd)
                for each in law.bins.reshape(-1, width).sum(axis=1).tolist()
            ),
        )

    def _cross(self, names: tuple[str, ...], cells: Floats, sd: float) -> CrossCard:
        labels = []
        for axis in self._query.tables[-1 - self._task.crosses[::-1].index(names)].axes:
            variable = self._task.variables[axis.cut]
            labels.append(
                bin_labels(variable.edges[:: axis.merged])
                if isinstance(variable, NumberVariable)
                else and_others(variable.names)
            )
        cells, left = fitted(cells, sd, self._total, self._total_sd)
        return CrossCard(
            variables=names,
            labels=tuple(map(tuple, labels)),
            counts=tuple(self._shown(each, left) for each in cells[:-1].tolist()),
        )


def _moments(law: Below) -> tuple[Known, Known]:
    """Return mean and variance of the values, outer ones cut to the bounds.

    A record is anywhere in its bin: of that too there is a standard deviation, as if all were off
    their bins' middles together, by an amount that is as likely as any.
    """
    edges, bins, records = law.edges, law.bins, max(law.present.mean, 1.0)
    middles, within = (edges[1:] + edges[:-1]) / 2.0, float(edges[1] - edges[0]) / math.sqrt(12.0)
    mean = float(middles @ bins) / records
    mean = min(max(mean, float(edges[0])), float(edges[-1]))
    mean_sd = law.sd((middles - mean) / records)
    squares = (middles - mean) ** 2
    variance = float(squares @ bins) / records
    variance_sd = law.sd((squares - variance) / records)
    return (
        Known(mean=mean, sd=math.hypot(mean_sd, within)),
        Known(mean=variance + mean_sd**2, sd=math.hypot(variance_sd, within**2)),
    )
