"""Shared base of the studies that estimate probabilities of cells from counts."""

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.posteriors.dirichlet_mixture import DirichletMixture
from shoal_protocol.queries import BinCounts, Counts
from shoal_protocol.queries.columns import ColumnName
from shoal_protocol.studies.one_round import DistributionStudy, Pseudocount


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
