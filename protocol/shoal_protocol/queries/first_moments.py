"""The sum of a client's rows, of columns or of one long vector, as queries."""

import math
from functools import lru_cache
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.queries.design import Mechanism, NoiseDesign
from shoal_protocol.queries.moments import Moments

LONGEST_VECTOR: Final = 10_000
"""Entries that a vector has at most."""


class FirstMoments(Moments):
    """Sum over the records of B (w_1, ..., w_p), and B^2 times their number.

    The factor B gives the noise as fine a grid as the squares have.
    """

    name: Literal["first_moments"] = "first_moments"

    @property
    def dimension(self) -> int:
        """Length of the vector, p + 1."""
        return self.width + 1

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """The same noise everywhere but on the number of records.

        A record in another's place moves each column by 2 B^2, and the intercept by k B if there is
        a ball to shrink it; one left out moves columns by B^2, the intercept by k B. In the ball L2
        2 R B^2 and R B^2, L1 sqrt(p) times that.
        """
        gaussian = mechanism == "discrete_gaussian"
        limit, columns = self.squared_norm_limit, self.width - bool(self.constant)
        rest = float(self.constant)
        shrunk = 0.0 if limit is None else rest
        if gaussian:
            column = math.sqrt(columns) * self.grid
            changed, left_out = math.hypot(2.0 * column, shrunk), math.hypot(column, rest)
        else:
            column = float(columns * self.grid)
            changed, left_out = 2.0 * column + shrunk, column + rest
        if limit is not None:
            norm = math.sqrt(limit if gaussian else limit * self.width)
            changed, left_out = min(changed, 2.0 * norm), min(left_out, norm)
        return self._with_count(
            mechanism, (self.width, 1.0), changed=changed * self.grid, left_out=left_out * self.grid
        )

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums and the number of `rows`, shape (p + 1,)."""
        return self._counted(self.grid * np.sum(rows, axis=0), rows)


class VectorSum(FirstMoments):
    """First moments of a vector, whose `entries` all have the bounds of the one column.

    Column `x` stands for the variables x_0, x_1, ..., so that a long vector takes a short query.
    """

    name: Literal["vector_sum"] = "vector_sum"  # type: ignore[assignment]
    entries: Annotated[int, Field(ge=1, le=LONGEST_VECTOR, strict=True)]

    @model_validator(mode="after")
    def _one_vector(self) -> Self:
        if len(self.columns) != 1 or self.columns[0].term is not None or self.intercept != 0.0:
            raise ValueError("a vector is one column, without a term, and without a constant")
        return self

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the variables of the records that are the vector's entries, in order."""
        return _entry_names(self.columns[0].name, self.entries)

    @property
    def width(self) -> int:
        """p, the length of the vector."""
        return self.entries


@lru_cache(maxsize=4)
def _entry_names(name: str, entries: int) -> tuple[str, ...]:
    return tuple(f"{name}_{place}" for place in range(entries))
