"""Shared base of the studies that estimate probabilities of cells from counts."""

from abc import abstractmethod
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from shoal_protocol.posteriors.dirichlet_mixture import DirichletMixture
from shoal_protocol.queries import BinCounts, Counts
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.columns import ColumnName
from shoal_protocol.studies.one_round import DistributionStudy, Pseudocount
from shoal_protocol.studies.study import Study

TABLE_BITS: Final = 22
"""Of the grid of tables."""


class TabulatingStudy(Study):
    """A study of tables, which count records with missing values, too.

    Numbers of records are not shown where fewer than `smallest_cell` may be behind them: where the
    lower end of a 95 % interval is below it. A data holder refuses less than its owner demands.
    """

    smallest_cell: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0

    @property
    def fewest_shown(self) -> int:
        return self.smallest_cell


def indicator_of(name: str) -> ColumnBounds:
    """Return the column that is 1 where a variable of the data dictionary has no value."""
    return ColumnBounds(name=f"{name}_missing", lower=0.0, upper=1.0)


class CellStudy(DistributionStudy):
    """The probability that a record of `column` is in each of some cells.

    Prior: Dirichlet, `concentration` for each cell.
    """

    column: ColumnName
    concentration: Pseudocount = 1.0

    @property
    @abstractmethod
    def cells(self) -> tuple[str, ...]:
        """The names of the cells, in the order of the query."""

    @abstractmethod
    def query(self) -> BinCounts | Counts:
        """Return the query of the only round, which carries the number of records."""

    @abstractmethod
    def posterior(self, counts: NDArray[np.int64]) -> DirichletMixture:
        """Return the posterior from true `counts` as they may be, shape (draws, cells)."""

    def _mixture(self, counts: NDArray[np.int64]) -> dict[str, Any]:
        """Return the fields of a Dirichlet mixture with these `counts`, shape (draws, cells)."""
        return {
            "column": self.column,
            "names": self.cells,
            "counts": tuple(map(tuple, counts.tolist())),
            "concentration": self.concentration,
            "records": max(1, round(float(counts.sum(axis=1).mean()))),
        }
