"""Columns of a client's records, and their public maps to [-1, 1]."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

ColumnName = Annotated[str, Field(min_length=1, max_length=64)]
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]


class Column(BaseModel):
    """One column of a client's records, and the affine map of its public range to [-1, 1]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ColumnName
    centre: FiniteFloat
    scale: Annotated[float, Field(gt=0.0, allow_inf_nan=False)]

    @field_validator("name")
    @classmethod
    def _printable(cls, name: str) -> str:
        if not name.isprintable() or name != name.strip():
            raise ValueError("a column's name must be printable and must not start or end in space")
        return name
