"""Quantiles of variables with wide bounds: each round looks closer where they may be."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.jobs.job_request import RoundTerms
from shoal_protocol.queries import Axis, EdgeCut, Table, Tables
from shoal_protocol.queries.columns import ColumnBounds, ColumnName
from shoal_protocol.queries.sums import tables_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Finite
from shoal_studies.catalogue.measurements import noisy_count, query_of
from shoal_studies.catalogue.study import require_due, round_terms
from shoal_studies.catalogue.tabulated import (
    TABLE_BITS,
    Below,
    TabulatingStudy,
    indicator_of,
    updated,
)
from shoal_studies.contract import Learner, RequestedRound
from shoal_studies.posteriors.base import LEVEL, BasePosterior
from shoal_studies.posteriors.forms import (
    REACHES,
    Known,
    KnownQuantile,
    Number,
    NumbersPosterior,
    reach_of,
)

_REACH: Final = 4.0  # standard deviations: where a quantile may be the next round looks
_FINEST: Final = 2.0**-48  # of the range or of the largest magnitude: a float tells edges apart


def laws(sums: Sequence[ReleasedSum]) -> list[Below]:
    """Return what all rounds together tell of each of the query's tables, one for each cut.

    Raises:
        ValueError: a sum is none of tables over one cut each.
    """
    found: list[Below | None] = [None] * len(query_of(sums[-1], Tables).tables)
    for released in sums:
        query = query_of(released, Tables)
        total, total_sd = noisy_count(released)
        counts = tables_from(query, released.values.astype(np.float64))
        sds = tables_from(query, released.noise_sd)
        for place, table in enumerate(query.tables):
            cut = query.cuts[table.axes[0].cut]
            if not isinstance(cut, EdgeCut):
                raise ValueError("quantiles are found between edges")
            sd, (*bins, missing) = float(sds[place][0]), counts[place].tolist()
            law = updated(found[place], np.array(cut.edges), np.array(bins), sd)
            found[place] = law.with_present(total - missing, math.hypot(total_sd, sd))
    return [each for each in found if each is not None]


def next_edges(law: Below, shares: Sequence[float], bins: int) -> tuple[float, ...]:
    """Return the edges of at most so many bins: narrow where quantiles may be, one in between.

    Each quantile has as many bins where it may be, even where these overlap others': else a
    quantile that may be nearly anywhere would spread all bins. Those that may be in the same place
    share bins.
    """
    first, last = float(law.edges[0]), float(law.edges[-1])
    finest = _FINEST * max(abs(first), abs(last), last - first)
    windows = set()
    for share in shares:
        ends = np.interp([-_REACH, _REACH], REACHES, law.points(share))
        low = float(law.edges[np.searchsorted(law.edges, ends[0], side="right") - 1])
        windows.add((low, float(law.edges[np.searchsorted(law.edges, ends[1], side="left")])))
    each = (bins - len(windows) - 1) // len(windows)
    edges = [first, last]
    for low, high in windows:
        parts = max(min(each, int((high - low) / finest)), 1)
        edges += np.linspace(low, high, parts + 1).tolist()
    found = np.unique(edges)
    if len(found) == 2:  # a cut has two bins or more
        found = np.array([first, (first + last) / 2.0, last])
    return tuple(found.tolist())


class VariableQuantiles(Model):
    """What is known of a variable's quantiles, within `bounds`, of `present` records."""

    name: str
    bounds: tuple[Finite, Finite]
    present: Known
    quantiles: tuple[KnownQuantile, ...]


class QuantilesPosterior(NumbersPosterior):
    """Quantiles of the records that there are, each as sharply as noise and rounds let it be."""

    name: Literal["quantiles"] = "quantiles"
    columns: tuple[str, ...]
    variables: Annotated[tuple[VariableQuantiles, ...], Field(min_length=1)]

    @cached_property
    def numbers(self) -> list[Number]:
        found = [Number("records", self.total, (0.0, float("inf")))]
        for variable in self.variables:
            for each in variable.quantiles:
                label = f"{variable.name}: quantile {each.level:g}"
                found.append(Number(label, self.total, variable.bounds, points=each.points))
        return found

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        return (
            (
                "Intervals",
                "account for the noise alone: of these records, and not of others like them",
            ),
        )


class QuantilesTask(TabulatingStudy):
    """The quantiles at `levels` of `variables` with wide bounds, by `rounds` of counts in bins.

    In each round every variable has at most `bins` bins: of one width in the first, later narrow
    ones where its quantiles may be. Each round costs as much, so take no more than the bounds need:
    with b bins and q levels r rounds tell apart a part (q / b)^r of the range, about. Values of
    `indicators` are missing where the column NAME_missing is 1. A client has one record at most.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (QuantilesPosterior,)
    example: ClassVar[str] = """\
[task]
name = "quantiles"
levels = [0.05, 0.25, 0.5, 0.75, 0.95]
rounds = 4
smallest_cell = 5              # of fewer records that have a value nothing is told

[variables]                    # public bounds, from general knowledge, never from the data
income = [0, 1e9]

"""

    name: Literal["quantiles"] = "quantiles"
    records_per_client: Annotated[int, Field(ge=1, le=1, strict=True)] = 1
    variables: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=64)]
    levels: Annotated[
        tuple[Annotated[float, Field(gt=0.0, lt=1.0)], ...], Field(min_length=1, max_length=9)
    ] = (0.25, 0.5, 0.75)
    bins: Annotated[int, Field(ge=32, le=1024, strict=True)] = 256
    rounds: Annotated[int, Field(ge=1, le=6, strict=True)] = 4
    indicators: tuple[ColumnName, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [each.name for each in self.variables]
        if len(set(self.levels)) != len(self.levels):
            raise ValueError("two levels are the same")
        if not set(self.indicators) <= set(names):
            raise ValueError("indicators are names of variables")
        self.query(())  # names that are distinct, and not too many cells
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The variables, then the indicators of their missing values."""
        return (*self.variables, *map(indicator_of, self.indicators))

    def query(self, earlier: Sequence[ReleasedSum]) -> Tables:
        """Return the query of the round after those that released the `earlier` sums."""
        if earlier:
            found = [next_edges(law, self.levels, self.bins) for law in laws(earlier)]
        else:
            found = [
                tuple(np.linspace(each.lower, each.upper, self.bins + 1).tolist())
                for each in self.variables
            ]
        flags = {name: len(self.variables) + at for at, name in enumerate(self.indicators)}
        return Tables(
            columns=tuple(each.column() for each in self.columns),
            cuts=tuple(
                EdgeCut(column=place, indicator=flags.get(each.name), edges=edges)
                for place, (each, edges) in enumerate(zip(self.variables, found, strict=True))
            ),
            tables=tuple(Table(axes=(Axis(cut=place),)) for place in range(len(found))),
            grid_bits=TABLE_BITS,
            records_per_client=self.records_per_client,
        )

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        """Return the terms: the first round as it is, and then with edges that are open."""
        first = round_terms(self.query(()))
        later = first.model_copy(update={"rounds": self.rounds - 1, "recentred": True})
        return (first, later) if self.rounds > 1 else (first,)

    def learner(self) -> Learner:
        return Quantiles(self)


@dataclass(frozen=True)
class Quantiles:
    """The learner of one `QuantilesTask`."""

    task: QuantilesTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | QuantilesPosterior:
        """Return the next round, or the posterior when `sums` are those of all.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        require_due(self.task, population, sums)
        if len(sums) < self.task.rounds:
            return RequestedRound(query=self.task.query(sums), share=1.0 / self.task.rounds)
        counts = [noisy_count(released) for released in sums]
        weights = [sd**-2 for _, sd in counts]
        total = sum(seen * weight for (seen, _), weight in zip(counts, weights, strict=True))
        mechanism = sums[-1].mechanism
        reach = reach_of(LEVEL, mechanism)
        return QuantilesPosterior.of(
            variables=tuple(
                self._variable(bounds, law, reach)
                for bounds, law in zip(self.task.variables, laws(sums), strict=True)
            ),
            total=Known(mean=total / sum(weights), sd=sum(weights) ** -0.5),
            records=max(1, round(total / sum(weights))),
            mechanism=mechanism,
            columns=tuple(each.name for each in self.task.columns),
        )

    def _variable(self, bounds: ColumnBounds, law: Below, reach: float) -> VariableQuantiles:
        is_told = law.tells(reach=reach, smallest=self.task.smallest_cell)
        return VariableQuantiles(
            name=bounds.name,
            bounds=(bounds.lower, bounds.upper),
            present=law.present,
            quantiles=law.quantiles(self.task.levels if is_told else ()),
        )
