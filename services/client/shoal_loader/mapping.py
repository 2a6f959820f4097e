"""The owner's `records.toml`: where raw data are, whose a row is, what makes each column."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from shoal_holder.site_files import MAPPING
from shoal_holder.toml_files import read_toml
from shoal_protocol.trust.dictionary import Category, DataDictionary, Variable
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import canonical_text

Text = Annotated[str, StringConstraints(min_length=1, max_length=10_000)]
ColumnName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]{1,256}$")]


class Table(Model):
    """A table in a DuckDB file."""

    database: Text
    table: Text


class Column(Model):
    """One column of the records: its type, and `sql`, a scalar expression or an aggregate of rows.

    A number is taken as it is, a flag becomes 0 or 1, a category the place of its level in
    `levels`, from 0, a date the days since 1970. A NULL is a missing value.
    """

    sql: Text
    type: Literal["number", "flag", "category", "date"] = "number"
    levels: tuple[Text, ...] = ()

    @field_validator("levels")
    @classmethod
    def _canonical(cls, levels: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(canonical_text, levels))

    @model_validator(mode="after")
    def _levels_are_for_categories(self) -> "Column":
        if self.type != "category" and self.levels:
            raise ValueError("nothing but a category has levels")
        if len(set(self.levels)) != len(self.levels):
            raise ValueError("two levels are the same")
        return self


class Mapping(Model):
    """What `records.toml` says. `id` is a column of the source; its text tells individuals apart.

    Of one individual's rows at most `rows_per_record` count. Times that have a zone are read as the
    clock showed in `time_zone`; without it they are refused.
    """

    source: Text | Table
    id: Text
    time_zone: Text | None = None
    rows_per_record: int = Field(default=1, ge=1, le=1000)
    memory_megabytes: int = Field(default=1024, ge=64, le=1 << 30)
    columns: dict[ColumnName, Column] = Field(min_length=1)

    @classmethod
    def from_directory(cls, directory: Path, dictionary: DataDictionary | None = None) -> "Mapping":
        """Read `records.toml` of a data holder's directory; levels may be left to a dictionary.

        Raises:
            ValueError: something in it is missing, unknown or wrong, or is not what the
                dictionary has.
            OSError: it cannot be read.
        """
        read = read_toml(directory / MAPPING, cls.model_validate)
        variables = None if dictionary is None else {v.name: v for v in dictionary.variables}
        columns = {canonical_text(name): each for name, each in read.columns.items()}
        if len(columns) != len(read.columns):
            raise ValueError(f"{directory / MAPPING}: two columns have the same name")
        agreed = {name: _agreed(name, each, variables) for name, each in columns.items()}
        return read.model_copy(update={"columns": agreed})


def _agreed(name: str, column: Column, variables: dict[str, Variable] | None) -> Column:
    """Return the column with its levels.

    Raises:
        ValueError: it has none, or it is another one in the dictionary.
    """
    where = f"{MAPPING}, columns.{name}"
    if variables is None:
        if column.type == "category" and not column.levels:
            raise ValueError(f"{where}: a category needs levels, or --consortium, which has them")
        return column
    variable = variables.get(name)
    if variable is None or variable.retired:
        found = ", ".join(each for each, listed in variables.items() if not listed.retired)
        raise ValueError(f"{where} is not in the consortium's dictionary, which has {found}")
    if variable.type != column.type:
        due = f'write type = "{variable.type}"'
        raise ValueError(f"{where} is a {variable.type} in the consortium's dictionary: {due}")
    if not isinstance(variable, Category):
        return column
    if column.levels not in ((), variable.levels):
        raise ValueError(f"{where}: the dictionary has other levels; leave them out")
    return column.model_copy(update={"levels": variable.levels})
