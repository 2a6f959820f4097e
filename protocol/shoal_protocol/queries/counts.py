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
    rounded_up,
)


class Counts(BaseModel):
    """For each of the public `levels`, how many records have exactly that value, times B.

    With `other` a last cell counts the records whose value is no level; without it they are
    counted nowhere. A client never stays away because of a value, for that would tell it. Levels
    are in the data's own units, whatever the column's map. The lattice is finer than a record,
    B = 2^grid_bits, so that the noise of many clients may be.
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
        """Length of the vector: one for each level, and one for all other values if counted."""
        return len(self.levels) + self.other

    @property
    def largest_value(self) -> int:
        """Largest magnitude that a coordinate of `encode` can have."""
        return self.grid * self.records_per_client

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """The same noise everywhere: L2 sqrt(2) r B and L1 2 r B, or r B for a single cell."""
        sensitivity = float(self.largest_value)
        if self.dimension > 1:
            sensitivity *= math.sqrt(2.0) if mechanism == "discrete_gaussian" else 2.0
        return NoiseDesign(
            sensitivity=rounded_up(sensitivity),
            blocks=(NoiseBlock(coordinates=self.dimension, relative_scale=1.0),),
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
        return counts * self.grid

    def counts_from(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return a sum of contributions, shape (dimension,), as noisy numbers of records.

        Raises:
            ValueError: `values` does not have the length `dimension`.
        """
        require_length(values, self.dimension)
        return values / float(self.grid)
