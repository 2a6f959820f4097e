"""Evaluates `records.toml` over its source, and writes the records as a typed table for the vault.

What DuckDB says of an error quotes values, so nobody is shown it: a message here names variable and
row.
"""

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from shoal_holder.records import Identity, Records, grouped
from shoal_holder.site_files import MAPPING, RECORDS_BY_ID
from shoal_holder.tables import flag_of
from shoal_kit.startup import replace
from shoal_loader.expressions import Expression, RefusedExpression, checked
from shoal_loader.mapping import Column, Mapping
from shoal_loader.source import KEY, SOURCE, Source, quoted
from shoal_protocol.trust.dictionary import EPOCH, DataDictionary
from shoal_protocol.wire.encoding import canonical_text

_SQL_TYPE = {"number": "DOUBLE", "flag": "VARCHAR", "category": "VARCHAR", "date": "DATE"}
_NOT = {
    "number": "not a number, with a point before decimals and no other separator",
    "flag": "not a flag, which is 0 or 1, true or false, yes or no",
    "category": "not a text",
    "date": "not a date as 2024-01-31; others are read by strptime(…, '%d.%m.%Y')",
}
_FIRST_DAY, _LAST_DAY = np.datetime64("1000-01-01"), np.datetime64("9999-12-31")
_NO_LEVEL = (
    "a text that is none of its levels, where upper and lower case differ: map it to a level or "
    "to NULL"
)


def evaluate(directory: Path, mapping: Mapping) -> Records:
    """Return what `records.toml` makes of its source.

    Raises:
        ValueError: the source, an expression or what it makes cannot be used; no value is named.
    """
    source = Source(directory, mapping)
    found, faults = _checked(source, mapping)
    by_id = any(each.aggregates for each in found.values())
    for name, each in found.items():
        if each.reads_zones and mapping.time_zone is None:
            faults[name] = (
                'reads times with a zone (%z): write time_zone = "UTC", or as "Europe/Helsinki", '
                "at the top, for the day that it is differs by zone"
            )
        if by_id and each.bare:
            faults[name] = (
                f"names {min(each.bare)!r} outside an aggregate, as another variable's do"
            )
    if faults:
        raise ValueError(
            "; ".join(f"{MAPPING}, columns.{n}.sql {why}" for n, why in faults.items())
        )
    if by_id and mapping.rows_per_record != 1:
        raise ValueError(f"{MAPPING}: aggregates make one row of an id: leave out rows_per_record")
    source.read(set[str]().union(*(each.columns for each in found.values())))
    order = f" GROUP BY {quoted(KEY)} ORDER BY {quoted(KEY)}" if by_id else ""
    keys = source.database.execute(f"SELECT {quoted(KEY)} FROM {SOURCE}{order}").fetchnumpy()[KEY]  # noqa: S608
    if not len(keys):
        raise ValueError(f"{source.where} holds no rows")
    values = np.full((len(keys), len(mapping.columns)), np.nan)
    for place, (name, column) in enumerate(mapping.columns.items()):
        try:
            values[:, place] = _evaluated(source, column, by_id)
        except _RefusedValue as error:
            faults[name] = str(error)
    if faults:
        raise ValueError("; ".join(f"variable {name!r} {why}" for name, why in faults.items()))
    ids, starts, values = grouped([str(each) for each in keys], values)
    identity = Identity(canonical_text(mapping.id), ids, mapping.rows_per_record)
    return Records(tuple(mapping.columns), values, starts, identity)


def write_table(
    directory: Path, records: Records, dictionary: DataDictionary | None = None
) -> Path:
    """Write the records where a vault reads them, for their owner alone; the old table or the new.

    With a dictionary that wants them, indicators of missing values are columns, too.

    Raises:
        OSError: the file cannot be written.
    """
    columns, identity = _with_indicators(records, dictionary), records.identity
    content = io.BytesIO()
    np.savez(
        content,
        id_column=_lines([identity.column]),
        rows_per_record=np.array([identity.rows_per_record]),
        columns=_lines(columns),
        ids=_lines(identity.ids),
        starts=records.starts,
        **{f"column{place}": each for place, each in enumerate(columns.values())},
    )
    path = directory / RECORDS_BY_ID
    replace(path, content.getvalue(), private=True)
    return path


def _with_indicators(records: Records, dictionary: DataDictionary | None) -> dict[str, Any]:
    columns = dict(zip(records.columns, records.values.T, strict=True))
    for variable in () if dictionary is None else dictionary.variables:
        if variable.indicator is not None and variable.name in columns:
            missing = np.isnan(columns[variable.name])
            in_place = variable.in_place_of_missing
            columns[variable.name] = np.where(missing, in_place, columns[variable.name])
            columns[variable.indicator.name] = missing.astype(np.float64)
    return columns


def _lines(texts: Iterable[str]) -> NDArray[np.uint8]:
    """Return texts without line breaks as the bytes of lines."""
    return np.frombuffer("\n".join(texts).encode(), np.uint8)


class _RefusedValue(ValueError):
    """A value cannot be taken; the message says in which row, never which."""


def _checked(source: Source, mapping: Mapping) -> tuple[dict[str, Expression], dict[str, str]]:
    found, faults = {}, {}
    for name, column in mapping.columns.items():
        try:
            found[name] = checked(source.parse, _statement(column), column.sql, source.types)
        except RefusedExpression as error:
            faults[name] = str(error)
    return found, faults


def _statement(column: Column, rest: str = "") -> Callable[[str], str]:
    kind = _SQL_TYPE[column.type]
    return lambda sql: f"SELECT CAST((\n{sql}\n) AS {kind}) AS value FROM {SOURCE}{rest}"  # noqa: S608


def _evaluated(source: Source, column: Column, by_id: bool) -> NDArray[np.float64]:
    key = quoted(KEY)
    group = f" GROUP BY {key} ORDER BY {key}" if by_id else ""

    def rows(rest: str) -> NDArray[np.float64]:
        statement = _statement(column, rest)
        checked(source.parse, statement, column.sql, source.types)  # the very text that is run
        found = source.database.execute(statement(column.sql)).fetchnumpy()["value"]
        return _numbers(np.ma.asarray(found), column)

    try:
        return rows(group)
    except duckdb.BinderException:
        raise _RefusedValue(
            "does not fit the types of its columns; those of a CSV file are text: write "
            f"CAST(… AS DOUBLE), and a {column.type} at the end"
        ) from None
    except duckdb.OutOfMemoryException:
        raise _RefusedValue("needs more than memory_megabytes") from None
    except (duckdb.Error, _RefusedValue) as error:
        row = _first_bad_row(source, rows, group)
        why = str(error)
        if isinstance(error, duckdb.Error):
            why = f"a cast or function of its sql fails, or gives what is {_NOT[column.type]}"
        raise _RefusedValue(f"cannot be made of {source.place(row)}: {why}") from None


def _first_bad_row(source: Source, rows: Callable[[str], NDArray[np.float64]], group: str) -> int:
    """Return the row, from 0, by which evaluating all rows up to it first fails."""
    good, bad = 0, source.rows
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            rows(f" WHERE rowid < {middle}{group}")
            good = middle
        except (duckdb.Error, _RefusedValue):
            bad = middle
    return bad - 1


def _numbers(found: Any, column: Column) -> NDArray[np.float64]:
    """Return the values of a masked array as numbers, NaN where one is missing."""
    missing = np.ma.getmaskarray(found)
    numbers = np.full(len(found), np.nan)
    there = np.asarray(found)[~missing]
    if column.type == "category":
        place = {level: float(index) for index, level in enumerate(column.levels)}
        try:
            numbers[~missing] = [place[canonical_text(each)] for each in there]
        except KeyError:
            raise _RefusedValue(_NO_LEVEL) from None
    elif column.type == "flag":
        try:
            numbers[~missing] = [flag_of(canonical_text(each)) for each in there]
        except ValueError:
            raise _RefusedValue(_NOT["flag"]) from None
    elif column.type == "date":
        if np.isnat(there).any() or (there < _FIRST_DAY).any() or (there >= _LAST_DAY).any():
            raise _RefusedValue("not a date with a year of four digits")
        days = there.astype("datetime64[D]") - np.datetime64(EPOCH)
        numbers[~missing] = days.astype(np.float64)
    else:
        numbers[~missing] = there.astype(np.float64)
        if not np.isfinite(numbers[~missing]).all():
            raise _RefusedValue("not a finite number")
    return numbers
