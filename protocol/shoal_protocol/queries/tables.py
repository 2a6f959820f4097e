"""Queries that count a client's records in the cells of one column, or of several tables.

Tables count missing values too.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from shoal_protocol.queries import design
from shoal_protocol.queries.columns import Column, ColumnBounds, LatticeQuery, design_of
from shoal_protocol.queries.design import Mechanism, NoiseDesign, rounded_up
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Real


def ascending(edges: tuple[float, ...]) -> tuple[float, ...]:
    """Edges, if each is larger than the one before."""
    if any(lower >= upper for lower, upper in pairwise(edges)):
        raise ValueError("each edge is larger than the one before")
    return edges


MOST_CELLS_OF_CUT: Final = 1024
MOST_CELLS_IN_ALL: Final = 16_384

_Place = Annotated[int, Field(ge=0, lt=512, strict=True)]  # among columns, or among cuts


class EdgeCut(Model):
    """Cuts a column into the bins between ascending `edges`; the outer ones hold all beyond.

    `column` and `indicator` are places among the query's columns. A value is missing if it is NaN
    or, where there is an indicator, that one is 1 or NaN.
    """

    kind: Literal["edges"] = "edges"
    column: _Place
    indicator: _Place | None = None
    edges: Annotated[
        tuple[Real, ...],
        Field(min_length=3, max_length=MOST_CELLS_OF_CUT + 1),
        AfterValidator(ascending),
    ]

    @property
    def cells(self) -> int:
        """One for each two edges that follow each other."""
        return len(self.edges) - 1

    def places(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the cell of each of `values`, shape (r,), from 0; any cell for NaN."""
        bins: NDArray[np.intp] = np.searchsorted(self.edges[1:-1], values, side="right")
        return np.minimum(bins, self.cells - 1)


class LevelCut(Model):
    """Cuts a column by its value: a cell for each of the `levels`, and a last one for all others.

    `column` and `indicator` are as of an `EdgeCut`.
    """

    kind: Literal["levels"] = "levels"
    column: _Place
    indicator: _Place | None = None
    levels: Annotated[tuple[Real, ...], Field(min_length=1, max_length=MOST_CELLS_OF_CUT)]

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len(set(self.levels)) != len(self.levels):
            raise ValueError("two levels are the same")
        return self

    @property
    def cells(self) -> int:
        """One for each level, and one for all else."""
        return len(self.levels) + 1

    def places(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the cell of each of `values`, shape (r,), from 0; any cell for NaN."""
        order = np.argsort(self.levels)
        ascending = np.array(self.levels)[order]
        near = np.minimum(np.searchsorted(ascending, values), len(order) - 1)
        return np.where(ascending[near] == values, order[near], len(order))


Cut = Annotated[EdgeCut | LevelCut, Field(discriminator="kind")]


class Counts(LatticeQuery):
    """Counts one column's records in each cell of a `cut`, times B, and all of them.

    Cells are in the data's own units, whatever the column's map. A client never stays away because
    of a value, for that would tell it. The lattice is finer than a record, B = 2^grid_bits, so that
    the noise of many clients may be.
    """

    name: Literal["counts"] = "counts"
    columns: Annotated[tuple[Column, ...], Field(min_length=1, max_length=1)]
    cut: Cut
    grid_bits: Annotated[int, Field(ge=4, le=24, strict=True)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.cut.column, self.cut.indicator) != (0, None):
            raise ValueError("the cut is of the only column, and no value is missing")
        return self

    @property
    def dimension(self) -> int:
        """Length of the vector: one for each cell, and their sum."""
        return self.cut.cells + 1

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """L2 sqrt(2) r B and L1 2 r B, with the same noise everywhere.

        Proof: docs/mathematics.md, proposition 2.6.
        """
        both = math.sqrt(2.0) if mechanism == "discrete_gaussian" else 2.0
        return self._with_count(
            mechanism,
            (self.dimension - 1, 1.0),
            changed=both * self.grid,
            left_out=float(self.grid),
        )

    def rows(self, records: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the one column of the records, shape (r, 1).

        Raises:
            ValueError: as `encode`.
        """
        records = design.usable(records, self.column_names, self.records_per_client)
        return design_of(self.columns, records)

    def summed(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return what records with these `rows` contribute, shape (dimension,)."""
        counts = np.bincount(self.cut.places(rows[:, 0]), minlength=self.cut.cells)
        return np.append(counts, len(rows)).astype(np.int64) * self.grid


class Axis(Model):
    """One side of a table: the cells of the query's cut number `cut`, `merged` of them to one."""

    cut: _Place
    merged: Annotated[int, Field(ge=1, le=MOST_CELLS_OF_CUT, strict=True)] = 1


class Table(Model):
    """A table over one to three axes, whose noise is `scale` times the round's.

    Its cells are in the order of C: the last axis runs fastest. A last one counts the records that
    lack a value on any axis.
    """

    axes: Annotated[tuple[Axis, ...], Field(min_length=1, max_length=3)]
    scale: Annotated[float, Field(ge=0.01, le=100.0)] = 1.0


class Tables(LatticeQuery):
    """Counts records in the cells of each table, times B, and then all records.

    A record is in exactly one cell of each table, whatever it lacks: whether a value is missing is
    as private as the value. Cells are in the data's own units, whatever the columns' maps; columns
    have no terms.
    """

    name: Literal["tables"] = "tables"
    cuts: Annotated[tuple[Cut, ...], Field(min_length=1, max_length=512)]
    tables: Annotated[tuple[Table, ...], Field(min_length=1, max_length=512)]
    grid_bits: Annotated[int, Field(ge=4, le=24, strict=True)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if any(column.term is not None for column in self.columns):
            raise ValueError("tables count variables as they are, and what terms make of none")
        places = {each.column for each in self.cuts}
        places |= {each.indicator for each in self.cuts if each.indicator is not None}
        if places != set(range(len(self.columns))):
            raise ValueError("cuts read the columns, and every one of them")
        axes = [axis for table in self.tables for axis in table.axes]
        if {axis.cut for axis in axes} != set(range(len(self.cuts))):
            raise ValueError("tables are over the cuts, and over every one of them")
        if any(self.cuts[axis.cut].cells % axis.merged for axis in axes):
            raise ValueError("as many cells are merged as divide a cut's")
        if self.dimension - 1 > MOST_CELLS_IN_ALL:
            raise ValueError(f"tables have at most {MOST_CELLS_IN_ALL} cells in all")
        return self

    def shape(self, table: Table) -> tuple[int, ...]:
        """Return how many cells a table has on each axis, without the last of what is missing."""
        return tuple(self.cuts[axis.cut].cells // axis.merged for axis in table.axes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many cells each table has, the one of what is missing among them."""
        return tuple(math.prod(self.shape(table)) + 1 for table in self.tables)

    @property
    def dimension(self) -> int:
        """Length of the vector: the cells of all tables, and the number of records."""
        return sum(self.sizes) + 1

    @property
    def entries(self) -> int:
        """How many numbers are worked out for one record: its places in cuts and in tables."""
        return len(self.cuts) + len(self.tables)

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """Return how the noise is spread, and the sensitivity by replacement of the contribution.

        A record leaves one cell of each table for another at most. Proof: docs/mathematics.md,
        proposition 2.6.
        """
        order = 2 if mechanism == "discrete_gaussian" else 1
        once = math.fsum(table.scale**-order for table in self.tables)  # by one cell of each table
        return self._with_count(
            mechanism,
            *((size, table.scale) for size, table in zip(self.sizes, self.tables, strict=True)),
            changed=rounded_up((2.0 * once) ** (1.0 / order)) * self.grid,
            left_out=rounded_up(once ** (1.0 / order)) * self.grid,
        )

    def rows(self, records: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return each record's cell of each table, shape (r, tables), as places in the vector.

        Raises:
            ValueError: as `encode`.
        """
        records = np.asarray(records, dtype=np.float64)
        lacking = np.isnan(records)
        design.usable(np.where(lacking, 0.0, records), self.column_names, self.records_per_client)
        missing = []
        for cut in self.cuts:
            missing.append(lacking[:, cut.column])
            if cut.indicator is not None:
                said = records[:, cut.indicator]
                missing[-1] = missing[-1] | (said == 1.0) | np.isnan(said)
        places = [cut.places(records[:, cut.column]) for cut in self.cuts]
        cells, start = np.empty((len(records), len(self.tables)), np.int64), 0
        for number, (table, size) in enumerate(zip(self.tables, self.sizes, strict=True)):
            cell, lost = np.zeros(len(records), np.int64), np.zeros(len(records), np.bool_)
            for axis, count in zip(table.axes, self.shape(table), strict=True):
                cell = cell * count + places[axis.cut] // axis.merged
                lost |= missing[axis.cut]
            cells[:, number] = start + np.where(lost, size - 1, cell)
            start += size
        return cells

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what records with these `rows` contribute, shape (dimension,)."""
        counts = np.bincount(rows.ravel(), minlength=self.dimension - 1)
        return np.append(counts, len(rows)).astype(np.int64) * self.grid

    def differs_in_edges_alone(self, other: "Tables", bounds: Mapping[str, ColumnBounds]) -> bool:
        """Tell whether `other` has the same cuts but for edges, no more, and within the bounds."""
        if len(self.cuts) != len(other.cuts):
            return False
        for mine, its in zip(self.cuts, other.cuts, strict=True):
            if isinstance(mine, LevelCut) or isinstance(its, LevelCut):
                if mine != its:
                    return False
                continue
            of_column = bounds[self.columns[mine.column].name]
            inside = of_column.lower <= its.edges[0] and its.edges[-1] <= of_column.upper
            same = (mine.column, mine.indicator) == (its.column, its.indicator)
            if not (same and inside and its.cells <= mine.cells):
                return False
        return True
