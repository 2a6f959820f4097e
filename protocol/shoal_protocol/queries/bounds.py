"""Public bounds of columns, from general knowledge and never from the data."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shoal_protocol.queries.columns import Column

_LARGEST: Final = 1e30  # of a bound: products and squares of it are still floats
_NARROWEST: Final = 1e-9  # of a range, relative to its bounds: a float tells 1e6 places in it apart

_Bound = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]


class ColumnBounds(BaseModel):
    """A column's name and the public range that its values are assumed to lie in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=64)]
    lower: _Bound
    upper: _Bound

    @model_validator(mode="after")
    def _usable(self) -> "ColumnBounds":
        if not self.lower < self.upper:
            raise ValueError("the lower bound of a column must be below its upper bound")
        largest = max(abs(self.lower), abs(self.upper))
        if self.upper - self.lower < max(_NARROWEST * largest, 1.0 / _LARGEST):
            raise ValueError("the bounds of a column are too close to be told apart")
        self.column()  # the same rules for names
        return self

    @property
    def centre(self) -> float:
        """The middle of the range."""
        return self.lower / 2.0 + self.upper / 2.0

    @property
    def half_range(self) -> float:
        """Half the width of the range."""
        return self.upper / 2.0 - self.lower / 2.0

    def column(self) -> Column:
        """Return the column of a query that takes the range to [-1, 1]."""
        return Column(name=self.name, centre=self.centre, scale=self.half_range)
