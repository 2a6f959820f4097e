"""Reads rows to predict: columns by name where they have names, by position of plain arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def names_of(rows: object) -> tuple[str, ...] | None:
    """Return the names of the columns of something that has names, None of an array without."""
    if isinstance(rows, Mapping):
        return tuple(map(str, rows))
    for attribute in ("column_names", "columns"):  # an Arrow table's columns are no names
        named = getattr(rows, attribute, None)
        if named is not None and not callable(named):
            return tuple(map(str, named))
    fields = getattr(getattr(rows, "dtype", None), "names", None)
    return None if fields is None else tuple(fields)


def rows_of(rows: Any, features: Sequence[str]) -> NDArray[np.float64]:
    """Return the columns `features` of rows, shape (n, m): by name, or by position of an array.

    Raises:
        ValueError: a name is missing, a value is no number, or the shape is another one.
    """
    names = names_of(rows)
    if names is not None:
        if missing := [name for name in features if name not in names]:
            raise ValueError(
                f"the rows have no column {', '.join(map(repr, missing[:5]))}: a posterior reads "
                "its features by name, and only its estimator makes them of other variables"
            )
        try:
            parts = [np.atleast_1d(np.asarray(rows[name], np.float64)) for name in features]
            rows = np.column_stack(parts)
        except (TypeError, ValueError):
            raise ValueError("columns must be numbers, and of one length") from None
    found = np.asarray(rows, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] != len(features):
        raise ValueError(f"rows must have shape (n, {len(features)}): one per feature")
    return found
