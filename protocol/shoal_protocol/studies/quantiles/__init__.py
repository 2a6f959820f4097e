"""Quantiles of variables with wide bounds: each round looks closer where they may be."""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.jobs.terms import AS_STATED, RoundTerms
from shoal_protocol.posteriors.base import BasePosterior
from shoal_protocol.posteriors.known import Known, KnownQuantile, Number, NumbersPosterior, Part
from shoal_protocol.queries import Axis, EdgeCut, Query, QueryName, Table, Tables
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.columns import ColumnName
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.cells import TABLE_BITS, TabulatingStudy, indicator_of
from shoal_protocol.studies.quantiles.zooming import first_edges, laws, next_edges
from shoal_protocol.wire.errors import RefusedSpec
from shoal_protocol.wire.numbers import Finite


class VariableQuantiles(Part):
    """What is known of a variable's quantiles, within `bounds`, of `present` records."""

    name: str
    bounds: tuple[Finite, Finite]
    present: Known
    quantiles: tuple[KnownQuantile, ...]


class QuantilesPosterior(NumbersPosterior):
    """Quantiles of the records that there are, each as sharply as noise and rounds let it be."""

    dimension = "quantile"

    name: Literal["quantiles"] = "quantiles"
    columns: tuple[str, ...]
    variables: Annotated[tuple[VariableQuantiles, ...], Field(min_length=1)]

    @classmethod
    def of(cls, variables: Sequence[VariableQuantiles], **fields: object) -> Self:
        """Return the posterior with these parts."""
        numbers = _numbers_of(Known.model_validate(fields["total"]), variables)
        names = tuple(each.label for each in numbers)
        return cls.model_validate({"names": names, "variables": tuple(variables), **fields})

    @cached_property
    def numbers(self) -> list[Number]:
        return _numbers_of(self.total, self.variables)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        return (("Intervals", "of what noise hides of the cohort's own records"),)


def _numbers_of(total: Known, variables: Sequence[VariableQuantiles]) -> list[Number]:
    found = [Number("records", total, (0.0, float("inf")))]
    for variable in variables:
        for each in variable.quantiles:
            label = f"{variable.name}: quantile {each.level:g}"
            found.append(Number(label, total, variable.bounds, points=each.points))
    return found


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

[columns]                      # public bounds, from general knowledge, never from the data
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

    @property
    def batch(self) -> int | None:
        """How many clients the round asks: None, for all that joined."""
        return None

    def participations(self, population: int) -> int:
        return self.rounds

    def query_name(self, number: int) -> QueryName:
        return "tables"

    def query_names(self) -> tuple[QueryName, ...]:
        return ("tables",)

    def query(self, earlier: Sequence[ReleasedSum]) -> Tables:
        """Return the query of the round after those that released the `earlier` sums."""
        if earlier:
            found = [next_edges(law, self.levels, self.bins) for law in laws(earlier)]
        else:
            found = [first_edges(each, self.bins) for each in self.variables]
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
        first = RoundTerms(
            rounds=1, query=self.query(()), recentred=False, stretch=AS_STATED, radius=None
        )
        later = first.model_copy(update={"rounds": self.rounds - 1, "recentred": True})
        return (first, later) if self.rounds > 1 else (first,)

    def check_query(
        self, query: Query, *, number: int, population: int, earlier: Sequence[ReleasedSum]
    ) -> None:
        due = self.query(earlier)
        if not isinstance(query, Tables) or _without_edges(query) != _without_edges(due):
            raise RefusedSpec("the query is not the one that the job's task asks")
        for bounds, mine, its in zip(self.variables, due.cuts, query.cuts, strict=True):
            assert isinstance(mine, EdgeCut) and isinstance(its, EdgeCut)  # noqa: S101
            slack = 1e-12 * max(abs(bounds.lower), abs(bounds.upper))
            if mine.cells != its.cells or not np.allclose(
                mine.edges, its.edges, rtol=0.0, atol=slack
            ):
                raise RefusedSpec("the query's edges do not follow from the earlier rounds")


def _without_edges(query: Tables) -> Tables:
    cuts = tuple(
        each.model_copy(update={"edges": ()}) if isinstance(each, EdgeCut) else each
        for each in query.cuts
    )
    return query.model_copy(update={"cuts": cuts})
