"""Reads a Parquet file of records, checked as a CSV file is."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shoal_holder.csv_files import check_header, chosen, grouped, id_column_of
from shoal_holder.records import Records, positions
from shoal_protocol.wire.texts import canonical_text


def read_parquet(file: Path, columns: Sequence[str] | None, *, id_column: str | None) -> Records:
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
            by = id_column_of(header, id_column)
            names = chosen(header, columns, by)
            wanted = [*names, *([by] if by and by not in names else [])]
            positions(tuple(header), tuple(wanted), str(file))
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
    ids: list[str] = []
    if by is not None:
        kind = table.column(by).type
        if not (types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind)):
            raise ValueError(f"{file}, column {by!r}: an id is text or a whole number")
        for row, named in enumerate(table.column(by).to_pylist(), start=1):
            ids.append("" if named is None else canonical_text(str(named)))
            if not ids[-1]:
                raise ValueError(f"{file}, row {row}, column {by!r}: the row has no id")
    return grouped(file, names, matrix, by, ids)
