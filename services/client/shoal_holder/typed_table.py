"""Reads the table of records by id that the loader writes: arrays of NumPy in one .npz file.

Texts are UTF-8, one to a line. Each column is an array of float64; rows of one individual come
together. Errors name the file, never a value or an id.
"""

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal_holder.keys import read_private
from shoal_holder.records import Identity, Records
from shoal_holder.tables import positions
from shoal_protocol.wire.texts import canonical_text


def read_table(file: Path, columns: Sequence[str] | None) -> Records:
    """Return the records in a table; `columns` None takes all columns.

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
            values = [np.asarray(arrays[f"column{place}"], np.float64) for place in places]
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
