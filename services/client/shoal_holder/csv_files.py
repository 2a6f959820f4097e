"""Reads records from a CSV file; errors name line and column, never a value."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shoal_holder.records import FloatMatrix, Records, positions


def read_csv(file: Path, columns: Sequence[str] | None, *, client_column: str | None) -> Records:
    """Return the records in a file, as `Records.from_csv`.

    Raises:
        ValueError, OSError: as `Records.from_csv`.
    """
    reader = csv.reader(io.StringIO(_decoded(file), newline=""), strict=True)
    clients: list[str] = []
    values: list[list[float]] = []
    try:
        header = next(reader, [])
        check_header(file, header)
        _check_separator(file, header)
        names = chosen(header, columns, client_column)
        wanted = positions(header, names, str(file))
        group = positions(header, [client_column], str(file))[0] if client_column else None
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
            if group is not None:
                clients.append(row[group])
                if not row[group].strip():
                    raise ValueError(f"{file}, line {line}: the row names no client")
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{file}, line {reader.line_num}: not CSV: {error}") from None
    return grouped(file, names, np.array(values), clients if client_column else None)


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


def chosen(
    header: Sequence[str], columns: Sequence[str] | None, client_column: str | None
) -> list[str]:
    """Return the names of the columns to read: those asked for, or all but the clients'."""
    if columns is None:
        return [name for name in header if name != client_column]
    return list(columns)


def _number(file: Path, line: int, column: str, text: str) -> float:
    if not text.strip():
        return math.nan
    if not _is_number(text):
        raise ValueError(f"{file}, line {line}, column {column!r}: not a number")
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
    file: Path, columns: Sequence[str], values: FloatMatrix, clients: Sequence[str] | None
) -> Records:
    """Return records whose rows of one client come together, clients by their first rows.

    Raises:
        ValueError: there are none.
    """
    if not len(values):
        raise ValueError(f"{file} holds no records")
    if clients is None:
        return Records(tuple(columns), values, np.arange(len(values) + 1))
    order: dict[str, int] = {}
    groups = np.array([order.setdefault(client, len(order)) for client in clients])
    starts = np.concatenate([[0], np.cumsum(np.bincount(groups))])
    return Records(tuple(columns), values[np.argsort(groups, kind="stable")], starts)
