"""How many of a client's records have which value, as a query; knows no noise and no budget."""

import math
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from shoal_protocol import quantisation
from shoal_protocol.queries.columns import Column, FiniteFloat
from shoal_protocol.queries.design import (
    Mechanism,
    NoiseBlock,
    NoiseDesign,
    require_length,
    with_count,
)


class Counts(BaseModel):
    """For each of the public `levels`, how many records have exactly that value, times B.

    With `other` a last cell counts the records whose value is no level; without it they are
    counted nowhere. After the cells comes the number of records counted. A single level is weighed
    against all else by the difference of the two cells, which asks for less noise than both. A
    client never stays away because of a value, for that would tell it. Levels are in the data's own
    units, whatever the column's map. The lattice is finer than a record, B = 2^grid_bits, so that
    the noise of many clients may be.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["counts"] = "counts"
    columns: Annotated[tuple[Column, ...], Field(min_length=1, max_length=1)]
    levels: Annotated[tuple[FiniteFloat, ...], Field(min_length=1, max_length=256)]
    other: bool
    grid_bits: Annotated[int, Field(ge=4, le=24, strict=True)]
    records_per_client: Annotated[int, Field(ge=1, le=1000, strict=True)]

    @model_validator(mode="after")
    def _consistent(self) -> "Counts":
        if len(set(self.levels)) != len(self.levels):
            raise ValueError("two levels are the same")
        if len(self.levels) == 1 and not self.other:
            raise ValueError("a single level is counted against all else: set other")
        return self

    @property
    def column_names(self) -> tuple[str, ...]:
        """The name of the one column of the records."""
        return tuple(column.name for column in self.columns)

    @property
    def grid(self) -> int:
        """B = 2^grid_bits: lattice units in one record."""
        return 1 << self.grid_bits

    @property
    def dimension(self) -> int:
        """Length of the vector: one for each cell, or one for two of them, and their sum."""
        return 2 if self.is_contrast else len(self.levels) + self.other + 1

    @property
    def is_contrast(self) -> bool:
        """Whether the vector begins with the difference of the only level's cell and the other."""
        return len(self.levels) == 1

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
        """Return the client's contribution, shape (dimension,), from `records`, shape (r, 1).

        Raises:
            ValueError: wrong shape, too many records, or a number that is not finite.
        """
        records = np.asarray(records, dtype=np.float64)
        quantisation.refuse_unusable(records, self.column_names, self.records_per_client)
        counts = np.array([np.count_nonzero(records == level) for level in self.levels], np.int64)
        if self.other:
            counts = np.append(counts, len(records) - counts.sum())
        cells = counts[:1] - counts[1:] if self.is_contrast else counts
        return np.append(cells, counts.sum()) * self.grid

    def counts_from(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return a sum of contributions, shape (dimension,), in records: noisy cells, their sum.

        Raises:
            ValueError: `values` does not have the length `dimension`.
        """
        require_length(values, self.dimension)
        return values / float(self.grid)
