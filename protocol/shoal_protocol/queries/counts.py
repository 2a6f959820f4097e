"""Queries that count a client's records by value or by bin."""

import math
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from shoal_protocol.queries import quantisation
from shoal_protocol.queries.columns import Column, design_of, in_levels, variables_of
from shoal_protocol.queries.design import Mechanism, NoiseBlock, NoiseDesign, with_count
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.numbers import Real

MOST_CELLS = 256


class CellCounts(Model, ABC):
    """Counts one column's records in each of some cells, times B, and in all of them.

    A record is in one cell at most. Cells are in the data's own units, whatever the column's map.
    The lattice is finer than a record, B = 2^grid_bits, so that the noise of many clients may be.
    """

    columns: Annotated[tuple[Column, ...], Field(min_length=1, max_length=1)]
    grid_bits: Annotated[int, Field(ge=4, le=24, strict=True)]
    records_per_client: Annotated[int, Field(ge=1, le=1000, strict=True)]

    @property
    @abstractmethod
    def cells(self) -> int:
        """How many cells there are, 2 at least."""

    @property
    def is_contrast(self) -> bool:
        """Whether the vector begins with the difference of the only two cells."""
        return False

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns of the records, in order: of the variables that are read."""
        return variables_of(self.columns)

    @property
    def grid(self) -> int:
        """B = 2^grid_bits: lattice units in one record."""
        return 1 << self.grid_bits

    @property
    def dimension(self) -> int:
        """Length of the vector: one for each cell, or one for two of them, and their sum."""
        return self.cells + 1 - self.is_contrast

    @property
    def largest_value(self) -> int:
        """Largest magnitude that a coordinate of `encode` can have."""
        return self.grid * self.records_per_client

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """L2 sqrt(2) r B and L1 2 r B, with the same noise everywhere; 2 r B for a difference.

        Then the number of records has, for the Gaussian, 1 / sqrt(3) of the difference's noise.
        """
        both = math.sqrt(2.0) if mechanism == "discrete_gaussian" else 2.0
        return with_count(
            mechanism,
            (NoiseBlock(coordinates=self.dimension - 1, relative_scale=1.0),),
            changed=(2.0 if self.is_contrast else both) * self.grid,
            left_out=float(self.grid),
            records=self.records_per_client,
            unit=self.grid,
        )

    def encode(self, records: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the client's contribution, shape (dimension,), from `records`.

        Shape (r, len(column_names)).

        Raises:
            ValueError: wrong shape, too many records, or a number that is not finite.
        """
        return self.summed(self.rows(records)[in_levels(self.columns, records)])

    def rows(self, records: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the one column of the records, shape (r, 1).

        Raises:
            ValueError: as `encode`.
        """
        records = np.asarray(records, dtype=np.float64)
        quantisation.refuse_unusable(records, self.column_names, self.records_per_client)
        return design_of(self.columns, records)

    def summed(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return what records with these `rows` contribute, shape (dimension,)."""
        counts = self._count(rows[:, 0])
        cells = counts[:1] - counts[1:] if self.is_contrast else counts
        return np.append(cells, counts.sum()) * self.grid

    @abstractmethod
    def _count(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return how many of `values`, shape (r,), are in each cell, shape (cells,)."""


class Counts(CellCounts):
    """For each of the public `levels`, how many records have exactly that value.

    With `other` a last cell counts the records whose value is no level; without it they are
    counted nowhere. A single level is weighed against all else by the difference of the two cells,
    which asks for less noise than both. A client never stays away because of a value, for that
    would tell it.
    """

    name: Literal["counts"] = "counts"
    levels: Annotated[tuple[Real, ...], Field(min_length=1, max_length=MOST_CELLS)]
    other: bool

    @model_validator(mode="after")
    def _consistent(self) -> "Counts":
        if len(set(self.levels)) != len(self.levels):
            raise ValueError("two levels are the same")
        if len(self.levels) == 1 and not self.other:
            raise ValueError("a single level is counted against all else: set other")
        return self

    @property
    def cells(self) -> int:
        """One for each level, and one for all else if `other`."""
        return len(self.levels) + self.other

    @property
    def is_contrast(self) -> bool:
        """Whether there is a single level."""
        return len(self.levels) == 1

    def _count(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        counts = np.array([np.count_nonzero(values == level) for level in self.levels], np.int64)
        return np.append(counts, len(values) - counts.sum()) if self.other else counts


def _ascending(edges: tuple[float, ...]) -> tuple[float, ...]:
    if any(lower >= upper for lower, upper in pairwise(edges)):
        raise ValueError("each edge is larger than the one before")
    return edges


Edges = Annotated[
    tuple[Real, ...],
    Field(min_length=3, max_length=MOST_CELLS + 1),
    AfterValidator(_ascending),
]
"""Where bins end and the next ones begin, ascending."""


class BinCounts(CellCounts):
    """Counts the records in each of the bins between the public `edges`.

    A bin holds the values from its lower edge on and below its upper one. The first also holds all
    below the first edge, and the last all from the last edge on: whatever its value, each record is
    in one bin.
    """

    name: Literal["bin_counts"] = "bin_counts"
    edges: Edges

    @property
    def cells(self) -> int:
        """One for each two edges that follow each other."""
        return len(self.edges) - 1

    def _count(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        bins = np.searchsorted(self.edges[1:-1], values, side="right")
        return np.bincount(bins, minlength=self.cells).astype(np.int64)
