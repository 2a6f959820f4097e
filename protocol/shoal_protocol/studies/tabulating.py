"""Shared base of the studies that ask `tables`."""

from typing import Annotated, Final

from pydantic import Field

from shoal_protocol.queries.bounds import ColumnBounds
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
