"""A histogram: how likely a record of a column lies in each of some bins."""

from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.posteriors.dirichlet_mixture import DirichletMixture
from shoal_protocol.queries import BinCounts
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.counts import Edges
from shoal_protocol.studies.cells import CellStudy
from shoal_protocol.studies.one_round import COUNT_BITS, log_probabilities, spanning


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

    def density(self) -> FloatVector:
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

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.columns[0].column()
        return self

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

    def posterior(self, counts: NDArray[np.int64]) -> HistogramPosterior:
        return HistogramPosterior(edges=self.edges, **self._mixture(counts))

    def log_likelihoods(self, posterior: Any, values: FloatMatrix) -> FloatVector:
        bins = np.searchsorted(self.edges[1:-1], values[:, 0], side="right")
        logs: FloatVector = log_probabilities(posterior.mean)[bins]
        return logs


def _names_of(edges: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(f"[{lower:.15g}, {upper:.15g})" for lower, upper in pairwise(edges))
