"""Reads a Parquet file of records, checked as a CSV file is."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shoal_holder.csv_files import check_header, chosen, grouped
from shoal_holder.records import Records, positions


def read_parquet(
    file: Path, columns: Sequence[str] | None, *, client_column: str | None
) -> Records:
    """Return the records in a file, as `Records.from_parquet`.

    Raises:
        ValueError, OSError, ImportError: as `Records.from_parquet`.
    """
    try:
        from pyarrow import ArrowInvalid, types  # type: ignore[import-untyped]
        from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(
            "Parquet files need the extra: pip install 'shoal-holder[parquet]'"
        ) from error

    try:
        with ParquetFile(file) as parquet:
            header = list(parquet.schema_arrow.names)
            check_header(file, header)
            names = chosen(header, columns, client_column)
            wanted = [*names, *([client_column] if client_column else [])]
            positions(header, wanted, str(file))
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
        found = column.to_numpy()  # nulls become NaN, and NaN in the file stays NaN
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
    return grouped(file, names, matrix, clients if client_column else None)
