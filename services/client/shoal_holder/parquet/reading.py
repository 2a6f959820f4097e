"""Reads a Parquet file as texts, so that it is checked as a CSV file is."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal_holder.tables import checked_names, positions
from shoal_protocol.wire.encoding import canonical_text

_ROWS = 10_000  # at a time


class ParquetTable:
    """A Parquet file; see `shoal_holder.tables.Table`. A null is a missing value, NaN none."""

    unit = "row"

    def __init__(self, file: Path) -> None:
        """Read the names of columns.

        Raises:
            ValueError: it is no such file.
            OSError, ImportError: it cannot be read; it needs the extra `parquet`.
        """
        self.file = file
        with self._opened() as parquet:
            self.written = tuple(parquet.schema_arrow.names)
        self.names = checked_names(self.written, f"{file}, schema")

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        """Yield each row's number, and its texts in these columns; see `Table`."""
        places = positions(self.names, tuple(columns), str(self.file))
        with self._opened() as parquet:
            fields = [parquet.schema_arrow.field(place) for place in places]
            for name, field in zip(columns, fields, strict=True):
                if _is_no_text(field.type):
                    raise ValueError(f"{self.file}, column {name!r} holds {field.type}, no values")
            raw = [field.name for field in fields]
            row = 0
            for batch in parquet.iter_batches(batch_size=_ROWS, columns=raw):
                found = [self._listed(batch.column(each), each) for each in raw]
                for values in zip(*found, strict=True):
                    row += 1
                    yield (
                        row,
                        ["" if each is None else canonical_text(str(each)) for each in values],
                    )

    def _listed(self, column: Any, name: str) -> list[Any]:
        try:
            return _listed(column)
        except UnicodeDecodeError:  # whose text shows a byte of a value
            raise ValueError(
                f"{self.file}, column {name!r}: not text in UTF-8: write the file anew"
            ) from None

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            from pyarrow import ArrowException  # type: ignore[import-untyped]
            from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]
        except ImportError as error:
            raise ImportError(
                "Parquet files need the extra: pip install 'shoal-holder[parquet]'"
            ) from error
        try:
            with ParquetFile(self.file) as parquet:
                yield parquet
        except (ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise ValueError(
                f"{self.file} is not a Parquet file, or is damaged: {type(error).__name__}"
            ) from None


def _is_no_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_nested(kind) or types.is_duration(kind) or "binary" in str(kind))


def _listed(column: Any) -> list[Any]:
    """Return the values of a column; dates and times are texts, for Python's lack digits."""
    import pyarrow

    if pyarrow.types.is_timestamp(column.type):
        column = column.cast(pyarrow.timestamp(column.type.unit))  # the zone is only how it shows
    if pyarrow.types.is_temporal(column.type):
        column = column.cast(pyarrow.string())
    listed: list[Any] = column.to_pylist()
    return listed
