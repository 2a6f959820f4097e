"""Proportions of records in cells, from counts: of values of a column, or of bins.

Other studies that count share the base class.
"""

from abc import abstractmethod
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.jobs.job_request import Terms
from shoal_protocol.queries import BinCounts, Counts
from shoal_protocol.queries.columns import ColumnBounds, ColumnName
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.tables import Edges
from shoal_protocol.trust.dictionary import Coding
from shoal_protocol.wire.encoding import Real
from shoal_studies.catalogue.study import (
    COUNT_BITS,
    Concentration,
    Labels,
    OneRoundStudy,
    WholeStudy,
    and_others,
    called,
    spanning,
)
from shoal_studies.posteriors.base import BasePosterior
from shoal_studies.posteriors.forms import DirichletMixture

TABLE_BITS: Final = 22
"""Of the grid of tables."""


class TabulatingStudy(WholeStudy):
    """A study of tables, which count records with missing values, too.

    Numbers of records are not shown where fewer than `smallest_cell` may be behind them: where the
    lower end of a 95 % interval is below it. A data holder refuses less than its owner demands.
    """

    smallest_cell: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0

    def terms(self, *, least: int, most: int) -> Terms:
        stated = super().terms(least=least, most=most)
        return stated.model_copy(update={"smallest_cell": self.smallest_cell})


def indicator_of(name: str) -> ColumnBounds:
    """Return the column that is 1 where a variable of the data dictionary has no value."""
    return ColumnBounds(name=f"{name}_missing", lower=0.0, upper=1.0)


class CellStudy(OneRoundStudy):
    """The probability that a record of `column` is in each of some cells.

    Prior: Dirichlet, `concentration` for each cell.
    """

    column: ColumnName
    concentration: Concentration = 1.0

    @property
    @abstractmethod
    def cells(self) -> tuple[str, ...]:
        """The names of the cells, in the order of the query."""

    @abstractmethod
    def query(self) -> BinCounts | Counts:
        """Return the query of the only round, which carries the number of records."""

    def posterior(self, counts: NDArray[np.int64], **fields: Any) -> BasePosterior:
        """Return the posterior from true `counts` as they may be, shape (draws, cells).

        `fields` are those that its class has beside a Dirichlet mixture's.
        """
        mixture = {
            "columns": (self.column,),
            "names": self.cells,
            "counts": tuple(map(tuple, counts.tolist())),
            "concentration": self.concentration,
            "records": max(1, round(float(counts.sum(axis=1).mean()))),
        }
        return self.posteriors[0].model_validate(mixture | fields)


class CategoricalPosterior(DirichletMixture):
    """Of the probabilities of the levels in order, then of "other" if the task counted it."""

    name: Literal["categorical"] = "categorical"


class CategoricalTask(CellStudy):
    """The probabilities of the public `levels` of `column`, which `labels` may name.

    Values that are no level make up a cell of their own, "other". Without `other` the analyst
    states that there are none: should there be, they are counted nowhere, and the posterior takes
    what is missing for noise. Prior: Dirichlet, `concentration` for each cell.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (CategoricalPosterior,)
    example: ClassVar[str] = """\
[task]
name = "categorical"
column = "stage"
levels = [1, 2, 3, 4]          # of a text: places in the dictionary, from 0, and their `labels`.
                               # Values that are none of them are counted as "other"
"""

    name: Literal["categorical"] = "categorical"
    levels: Annotated[tuple[Real, ...], Field(min_length=2, max_length=255)]
    labels: Labels = ()
    other: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> "CategoricalTask":
        called(self.levels, self.labels)
        self.query()  # levels that are distinct
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (spanning(self.column, self.levels),)

    @property
    def codings(self) -> tuple[Coding, ...]:
        return (Coding(self.column, "levels", self.levels),)

    @property
    def cells(self) -> tuple[str, ...]:
        names = called(self.levels, self.labels)
        return and_others(names) if self.other else names

    def query(self) -> Counts:
        """Return the query of the only round."""
        return Counts(
            columns=self._query_columns(),
            levels=self.levels,
            other=self.other,
            grid_bits=COUNT_BITS,
            records_per_client=self.records_per_client,
        )


class HistogramPosterior(DirichletMixture):
    """Of the probabilities of the bins between `edges`, in order."""

    dimension = "bin"

    name: Literal["histogram"] = "histogram"
    edges: Edges

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.names != _names_of(self.edges):
            raise ValueError("names must be those of the bins, in order")
        return self

    def density(self) -> Floats:
        """Return the mean probability of each bin by its width, shape (bins,): bars of that area.

        Mass beyond the outer edges counts in the outer bins.
        """
        return np.asarray(self.mean / np.diff(self.edges))


class HistogramTask(CellStudy):
    """The probabilities of the bins of `column` between the public `edges`.

    A bin holds the values from its lower edge on and below its upper one. The first holds all that
    is below, too, and the last all from the last edge on: each record is in one bin. Prior:
    Dirichlet, `concentration` for each bin.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (HistogramPosterior,)
    example: ClassVar[str] = """\
[task]
name = "histogram"
column = "age"
edges = [18, 30, 45, 60, 75, 100]  # of bins, from general knowledge, never from the data
"""

    name: Literal["histogram"] = "histogram"
    edges: Edges

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (spanning(self.column, self.edges),)

    @property
    def cells(self) -> tuple[str, ...]:
        return _names_of(self.edges)

    def query(self) -> BinCounts:
        """Return the query of the only round."""
        return BinCounts(
            columns=self._query_columns(),
            edges=self.edges,
            grid_bits=COUNT_BITS,
            records_per_client=self.records_per_client,
        )

    def posterior(self, counts: NDArray[np.int64], **fields: Any) -> BasePosterior:
        return super().posterior(counts, edges=self.edges, **fields)


def _names_of(edges: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(f"[{lower:.15g}, {upper:.15g})" for lower, upper in pairwise(edges))
