"""The data holder's records, checked when they are loaded; knows no query, no key and no peer.

What is wrong is named by file, line and column, never by value: a message may end in a log. An
empty cell is a missing value; a client without any record has a row of them.
"""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FloatMatrix = NDArray[np.float64]


@dataclass(frozen=True)
class Records:
    """Numbers, shape (rows, columns), NaN where one is missing, and whose rows they are.

    `starts`, shape (clients + 1,): the client at position i has the rows from starts[i] up to
    starts[i + 1]. It is the client of the i-th key in the key file, so neither order may change
    while the other stays.
    """

    columns: tuple[str, ...]
    values: FloatMatrix = field(repr=False)
    starts: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        if len(set(self.columns)) != len(self.columns):
            raise ValueError("two columns have the same name")
        if self.values.ndim != 2 or self.values.shape[1] != len(self.columns):
            raise ValueError("values must have shape (rows, columns)")
        if np.isinf(self.values).any():
            raise ValueError("every value must be a finite number, or NaN where it is missing")
        if len(self) < 1 or self.starts[0] != 0 or self.starts[-1] != len(self.values):
            raise ValueError("starts must divide all rows among one or more clients")
        if (self.counts < 1).any():
            raise ValueError("every client must have a row")

    def __len__(self) -> int:
        """Return the number of clients."""
        return len(self.starts) - 1

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Return how many rows each client has, shape (clients,)."""
        return np.diff(self.starts)

    def of(self, position: int, columns: Sequence[str]) -> FloatMatrix:
        """Return the rows of the client at `position`, shape (its rows, len(columns)).

        Raises:
            ValueError: there is no such column.
        """
        rows = self.values[self.starts[position] : self.starts[position + 1]]
        return rows[:, _positions(self.columns, columns, "the records")]

    @classmethod
    def from_file(
        cls,
        path: str | PathLike[str],
        columns: Sequence[str] | None = None,
        *,
        client_column: str | None = None,
    ) -> "Records":
        """Read a file of the kind that its name ends in: .csv or .parquet.

        Raises:
            ValueError, OSError, ImportError: as `from_csv` and `from_parquet`.
        """
        kinds = {".csv": cls.from_csv, ".parquet": cls.from_parquet}
        read = kinds.get(Path(path).suffix.lower())
        if read is None:
            raise ValueError(f"{path}: a file of records ends in .csv or .parquet")
        return read(path, columns, client_column=client_column)

    @classmethod
    def from_csv(
        cls,
        path: str | PathLike[str],
        columns: Sequence[str] | None = None,
        *,
        client_column: str | None = None,
    ) -> "Records":
        """Read a CSV file (RFC 4180, UTF-8, a header line); `columns` None takes all columns.

        One row is one client's record. With `client_column`, the rows that have the same text in
        that column are one client's, and clients come in the order of their first rows. Empty
        cells are missing values. Blank lines may only stand at the end.

        Raises:
            ValueError: the file cannot be used; the message names line and column.
            OSError: the file cannot be read.
        """
        file = Path(path)
        reader = csv.reader(io.StringIO(_decoded(file), newline=""), strict=True)
        clients: list[str] = []
        values: list[list[float]] = []
        try:
            header = next(reader, [])
            _check_header(file, header)
            _check_separator(file, header)
            names = _chosen(header, columns, client_column)
            wanted = _positions(header, names, str(file))
            group = _positions(header, [client_column], str(file))[0] if client_column else None
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
        return _records(file, names, np.array(values), clients if client_column else None)

    @classmethod
    def from_parquet(
        cls,
        path: str | PathLike[str],
        columns: Sequence[str] | None = None,
        *,
        client_column: str | None = None,
    ) -> "Records":
        """Read a Parquet file (needs the extra `parquet`); arguments as for `from_csv`.

        A null is a missing value; NaN is refused.

        Raises:
            ValueError: the file cannot be used; the message names row (from 1) and column.
            OSError: the file cannot be read.
        """
        try:
            from pyarrow import ArrowInvalid, types  # type: ignore[import-untyped]
            from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]
        except ImportError as error:
            raise ImportError(
                "Parquet files need the extra: pip install 'shoal[parquet]'"
            ) from error

        file = Path(path)
        try:
            with ParquetFile(file) as parquet:
                header = list(parquet.schema_arrow.names)
                _check_header(file, header)
                names = _chosen(header, columns, client_column)
                wanted = [*names, *([client_column] if client_column else [])]
                _positions(header, wanted, str(file))
                table = parquet.read(columns=wanted)
        except ArrowInvalid:
            raise ValueError(f"{file} is not a Parquet file, or is damaged") from None
        matrix = np.empty((table.num_rows, len(names)))
        for position, name in enumerate(names):
            column = table.column(name)
            if types.is_null(column.type):  # no value of it is there
                matrix[:, position] = np.nan
                continue
            if not (types.is_integer(column.type) or types.is_floating(column.type)):
                raise ValueError(f"{file}, column {name!r} does not hold numbers")
            found = column.to_numpy()  # a null becomes NaN, and so did what was one in the file
            missing = column.is_null().to_numpy()
            if bad := np.flatnonzero(~np.isfinite(found) & ~missing).tolist():
                raise ValueError(f"{file}, row {bad[0] + 1}, column {name!r}: not a finite number")
            matrix[:, position] = found
        clients: list[str] = []
        if client_column is not None:
            for row, named in enumerate(table.column(client_column).to_pylist(), start=1):
                if named is None or not str(named).strip():
                    raise ValueError(f"{file}, row {row}: the row names no client")
                clients.append(str(named))
        return _records(file, names, matrix, clients if client_column else None)


def _decoded(file: Path) -> str:
    content = file.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{file}, line {line}: not UTF-8; save the file as CSV in UTF-8") from None


def _check_header(file: Path, header: Sequence[str]) -> None:
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


def _chosen(
    header: Sequence[str], columns: Sequence[str] | None, client_column: str | None
) -> list[str]:
    if columns is None:
        return [name for name in header if name != client_column]
    return list(columns)


def _positions(header: Sequence[str], names: Sequence[str], where: str) -> list[int]:
    position = {name: index for index, name in enumerate(header)}
    for name in names:
        if name not in position:
            # what is there is not repeated: without a header line it would be somebody's record
            raise ValueError(
                f"{where}: there is no column {name!r}; the header names {len(header)}"
            )
    return [position[name] for name in names]


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


def _records(
    file: Path, columns: Sequence[str], values: FloatMatrix, clients: Sequence[str] | None
) -> Records:
    if not len(values):
        raise ValueError(f"{file} holds no records")
    if clients is None:
        return Records(tuple(columns), values, np.arange(len(values) + 1))
    order: dict[str, int] = {}
    groups = np.array([order.setdefault(client, len(order)) for client in clients])
    starts = np.concatenate([[0], np.cumsum(np.bincount(groups))])
    return Records(tuple(columns), values[np.argsort(groups, kind="stable")], starts)
