"""Reads the files that records are in: CSV, and the table by id that the loader writes.

Errors name file, line and column, never a value or an id: a message may end in a log. The loader's
table is arrays of NumPy in one .npz file: texts are UTF-8, one to a line; each column is an array
of float64; rows of one individual come together.
"""

import io
import zipfile
from array import array
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal_holder.keys import read_private
from shoal_holder.records import MOST_ROWS, Identity, Records, grouped
from shoal_holder.tables import CsvTable, id_column_of, id_fault, number_of, positions
from shoal_protocol.wire.encoding import canonical_text


def read_records(
    path: str | PathLike[str],
    columns: Sequence[str] | None = None,
    *,
    id_column: str | None = None,
) -> Records:
    """Read a CSV file, or the loader's, whose name ends in .npz.

    `columns` None takes all columns. The rows that have the same text in `id_column`, or
    without one in a column `id`, are one client's. A file that has neither holds one row. Empty
    cells are missing values.

    Raises:
        ValueError: the file cannot be used; the message names line and column.
        OSError: it cannot be read.
    """
    file = Path(path)
    if file.suffix.lower() == ".npz" and id_column is None:
        return _records_by_id(file, columns)
    table = CsvTable(file)
    by = id_column_of(table.names, id_column, str(file))
    names = [name for name in table.names if name != by] if columns is None else list(columns)
    ids: list[str] = []
    numbers = array("d")
    rows = 0
    for line, texts in table.rows([*names, *([] if by is None else [by])]):
        rows += 1
        where = f"{file}, line {line}, column"
        if by is not None:
            ids.append(texts[-1])
            if (fault := id_fault(ids[-1])) is not None:
                raise ValueError(f"{where} {by!r}: {fault}")
        for name, text in zip(names, texts, strict=False):
            try:
                numbers.append(number_of(text))
            except ValueError as error:
                ids_hint = "" if by else "; a column of ids is called 'id'"
                raise ValueError(f"{where} {name!r}: {error}{ids_hint}") from None
    if not rows:
        raise ValueError(f"{file} holds no records")
    if by is None and rows > 1:
        raise ValueError(f"{file}: several rows without ids: add a column 'id', or name another")
    values = np.array(numbers).reshape(rows, len(names))
    columns = tuple(map(canonical_text, names))
    if by is None:
        return Records(columns, values, np.arange(2))
    individuals, starts, values = grouped(ids, values)
    return Records(columns, values, starts, Identity(by, individuals, MOST_ROWS))


def _records_by_id(file: Path, columns: Sequence[str] | None) -> Records:
    """Return the records in the loader's table; `columns` None takes all columns.

    Raises:
        ValueError: others may read the file, it is no such table, or has no such column.
        OSError: it cannot be read.
    """
    content = io.BytesIO(read_private(file))
    try:
        with np.load(content, allow_pickle=False) as arrays:
            names = _texts(arrays, "columns")
            ids, (id_column,) = _texts(arrays, "ids"), _texts(arrays, "id_column")
            starts, most = arrays["starts"], int(arrays["rows_per_record"][0])
            wanted = list(names if columns is None else columns)
            places = positions(tuple(names), tuple(wanted), str(file))
            values = [arrays[f"column{each}"].astype(float, casting="same_kind") for each in places]
    except (KeyError, TypeError, EOFError, UnicodeDecodeError, zipfile.BadZipFile):
        raise ValueError(f"{file} is no table of records; run `shoal records load`") from None
    if any(each != canonical_text(each) or not each for each in ids) or most < 1:
        raise ValueError(f"{file}: an id is not canonical; run `shoal records load` again")
    stacked = np.column_stack(values) if values else np.empty((int(starts[-1]), 0))
    return Records(
        tuple(map(canonical_text, wanted)), stacked, starts, Identity(id_column, ids, most)
    )


def _texts(arrays: Mapping[str, NDArray[Any]], name: str) -> tuple[str, ...]:
    return tuple(arrays[name].astype(np.uint8).tobytes().decode("utf-8").split("\n"))
