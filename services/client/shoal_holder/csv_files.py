"""Reads records from a CSV file; errors name line and column, never a value."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shoal_holder.choice import MOST_ROWS
from shoal_holder.records import FloatMatrix, Identity, Records, positions
from shoal_protocol.wire.texts import canonical_text


def read_csv(file: Path, columns: Sequence[str] | None, *, id_column: str | None) -> Records:
    """Return the records in a file, as `Records.from_csv`.

    Raises:
        ValueError, OSError: as `Records.from_csv`.
    """
    reader = csv.reader(io.StringIO(_decoded(file), newline=""), strict=True)
    ids: list[str] = []
    values: list[list[float]] = []
    try:
        header = next(reader, [])
        check_header(file, header)
        _check_separator(file, header)
        by = id_column_of(header, id_column)
        names = chosen(header, columns, by)
        wanted = positions(tuple(header), tuple(names), str(file))
        place = None if by is None else positions(tuple(header), (by,), str(file))[0]
        line, blank = reader.line_num + 1, 0
        for row in reader:
            if row and blank:
                raise ValueError(
                    f"{file}, line {blank}: blank line; a row without values has its commas, "
                    'and in a file of one column ""'
                )
            if not row:
                blank = blank or line
                line = reader.line_num + 1
                continue
            if len(row) != len(header):
                raise ValueError(f"{file}, line {line}: {len(row)} fields, not {len(header)}")
            values.append([_number(file, line, header[i], row[i]) for i in wanted])
            if place is not None:
                ids.append(canonical_text(row[place]))
                if not ids[-1]:
                    raise ValueError(f"{file}, line {line}, column {by!r}: the row has no id")
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{file}, line {reader.line_num}: not CSV: {error}") from None
    return grouped(file, names, np.array(values), by, ids)


def _decoded(file: Path) -> str:
    content = file.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{file}, line {line}: not UTF-8; save the file as CSV in UTF-8") from None


def check_header(file: Path, header: Sequence[str]) -> None:
    """Refuse a header that names no column, or one twice.

    Raises:
        ValueError
    """
    if not header:
        raise ValueError(f"{file} is empty: line 1 must hold the columns' names")
    first: dict[str, int] = {}
    for number, name in enumerate(header, start=1):
        if not name.strip() or _is_number(name):  # a file without a header must not be echoed
            raise ValueError(f"{file}, line 1: field {number} is not a column's name")
        if first.setdefault(name, number) != number:
            raise ValueError(f"{file}, line 1: fields {first[name]} and {number} are the same name")


def _check_separator(file: Path, header: Sequence[str]) -> None:
    if len(header) == 1 and any(separator in header[0] for separator in ";\t"):
        raise ValueError(f"{file}, line 1: fields must be separated by commas; save it as CSV")


def id_column_of(header: Sequence[str], named: str | None) -> str | None:
    """Return the column of ids: the one that is named, or `id` where there is one."""
    return named or ("id" if "id" in header else None)


def chosen(
    header: Sequence[str], columns: Sequence[str] | None, id_column: str | None
) -> list[str]:
    """Return the names of the columns to read: those asked for, or all but the ids'."""
    if columns is None:
        return [name for name in header if name != id_column]
    return list(columns)


def _number(file: Path, line: int, column: str, text: str) -> float:
    if not text.strip():
        return math.nan
    if not _is_number(text):
        raise ValueError(f"{file}, line {line}, column {column!r}: not a number; see records.toml")
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{file}, line {line}, column {column!r}: not a finite number")
    return number


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # 1_000 is Python's, not CSV's


def grouped(
    file: Path, columns: Sequence[str], values: FloatMatrix, id_column: str | None, ids: list[str]
) -> Records:
    """Return records by id; an individual's rows come by their values, so order means nothing.

    `ids` are canonical, one for each row of `values`; there are none without `id_column`.

    Raises:
        ValueError: there are no rows, or several without ids.
    """
    if not len(values):
        raise ValueError(f"{file} holds no records")
    if id_column is None:
        return Records(tuple(columns), values, np.arange(len(values) + 1))
    order: dict[str, int] = {}
    groups = np.array([order.setdefault(each, len(order)) for each in ids])
    starts = np.concatenate([[0], np.cumsum(np.bincount(groups))])
    values = values + 0.0  # −0.0 becomes 0.0: which of the two came first must not show
    kept = np.lexsort((*values.T[::-1], groups))
    identity = Identity(id_column, tuple(order), MOST_ROWS)
    return Records(tuple(columns), values[kept], starts, identity)
