"""Reads tables as libraries of data frames have them: columns by name, and their numbers.

No such library is imported. Numbers never come from texts.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise
from numbers import Integral
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.wire.texts import canonical_text

_MISSING: Final = frozenset({"NAType", "NaTType", "NoneType"})  # pandas' own, and Python's


def names_of(rows: object) -> tuple[Any, ...] | None:
    """Return the names of the columns of something that has names, None of an array without."""
    if isinstance(rows, Mapping):
        return tuple(rows)
    for attribute in ("column_names", "columns"):  # an Arrow table's columns are no names
        named = getattr(rows, attribute, None)
        if named is not None and not callable(named):
            return tuple(named)
    fields = getattr(getattr(rows, "dtype", None), "names", None)
    return None if fields is None else tuple(fields)


def columns_of(table: Any) -> dict[str, Any] | None:
    """Return the columns of a table by the canonical form of their names; None if it has no names.

    Raises:
        ValueError: the table is a lazy frame, a name is no text or stands twice, or columns of a
            mapping are pandas Series with different indexes, which belong to different rows.
    """
    if type(table).__name__ == "LazyFrame":
        raise ValueError("a lazy frame has no values yet: hand over what its .collect() returns")
    keys = names_of(table)
    if keys is None:
        return None
    by_name: dict[str, Any] = {}
    for key in keys:
        name = _name_of(key)
        if name in by_name:
            raise ValueError(f"two columns have the same name {name!r}: rename one, or drop it")
        by_name[name] = key
    columns = {name: table[key] for name, key in by_name.items()}
    require_one_index(columns)
    return columns


def require_one_index(columns: Mapping[str, Any]) -> None:
    """Check that those columns that have an index, as pandas Series do, have the same one.

    Raises:
        ValueError: two differ: their values belong to different rows.
    """
    indexes = {name: getattr(values, "index", None) for name, values in columns.items()}
    indexed: list[tuple[str, Any]] = [
        (name, each) for name, each in indexes.items() if hasattr(each, "equals")
    ]
    for (first, one), (second, other) in pairwise(indexed):
        if one is not other and not one.equals(other):
            raise ValueError(
                f"{first!r} and {second!r} have different indexes, so that their rows do not "
                "belong together by position: put them into one data frame, as pandas.concat does "
                "by index, or hand over arrays"
            )


def _name_of(key: object) -> str:
    if isinstance(key, bool) or not isinstance(key, str | Integral):
        raise ValueError(
            "a column's name is no text: give each column one name, without levels of names"
        )
    return canonical_text(str(key))


def array_of(values: Any) -> NDArray[Any]:
    """Return values as an array; lists of texts and other things keep each as it is.

    NumPy by itself would make texts of numbers, and of what is missing.
    """
    try:
        found = np.asarray(values)
    except ValueError:  # lists of unlike lengths
        return np.array(values, dtype=object)
    is_list = isinstance(values, Sequence) and found.dtype.kind in "US"
    return np.array(values, dtype=object) if is_list else found


def is_missing(value: object) -> bool:
    """Tell whether this is what libraries put for a value that is missing."""
    return type(value).__name__ in _MISSING or (isinstance(value, float) and value != value)


def require_plain(values: Any) -> None:
    """Check that no value is masked, or a category that is no text.

    What is under a mask is no value. Categories that are numbers are neither a quantity nor texts,
    by which levels are told apart.

    Raises:
        ValueError: one is; the message begins with what the values do.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError("holds a masked value: leave out what is missing, or fill it in")
    kinds = [getattr(values, each, None) for each in ("dtype", "type")]
    kinds.append(getattr(kinds[0], "pyarrow_dtype", None))
    if any(hasattr(each, "categories") or hasattr(each, "index_type") for each in kinds) and any(
        not (isinstance(each, str) or is_missing(each)) for each in array_of(values).tolist()
    ):
        raise ValueError(
            "has categories that are no texts: make them texts, as .cat.rename_categories(str) "
            "does, or make the column numbers, as .astype(float) does"
        )


def numbers_of(values: Any) -> NDArray[np.float64]:
    """Return values as numbers, in their shape; what is missing is NaN.

    Raises:
        ValueError: one is no number, masked, or a category; the message begins with what the
            values do.
    """
    require_plain(values)
    found = array_of(values)
    try:
        if found.dtype.kind == "O":
            listed = [_number(each) for each in found.ravel().tolist()]
            return np.array(listed, np.float64).reshape(found.shape)
        if found.dtype.kind in "biuf":
            return found.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    held = next((each for each in found.ravel().tolist() if not is_missing(each)), None)
    kind = type(held).__name__
    if isinstance(held, str):
        how = "texts: make them numbers, as pandas.to_numeric does"
    elif "timedelta" in kind.lower() or found.dtype.kind == "m":
        how = "durations: make them numbers, as .dt.total_seconds() / 86400 does"
    elif kind == "Period":
        how = "periods: make them days, as .dt.to_timestamp() does"
    elif kind == "Interval":
        how = "intervals: make them texts, as .astype(str) does"
    else:
        how = "something else than numbers: every value must be a number"
    raise ValueError(f"holds {how}")


def _number(value: Any) -> float:
    if is_missing(value):
        return np.nan
    if isinstance(value, str | bytes | date):
        raise TypeError
    return float(value)


def rows_of(rows: Any, features: Sequence[str]) -> NDArray[np.float64]:
    """Return the columns `features` of rows, shape (n, m): by name, or by position of an array.

    Raises:
        ValueError: a name is missing, a value is no number, or the shape is another one.
    """
    columns = columns_of(rows)
    if columns is not None:
        if missing := [name for name in features if name not in columns]:
            raise ValueError(
                f"the rows have no column {', '.join(map(repr, missing[:5]))}: a posterior reads "
                "its features by name, and only its estimator makes them of other variables"
            )
        try:
            parts = [np.atleast_1d(numbers_of(columns[name])) for name in features]
            rows = np.column_stack(parts)
        except ValueError:
            raise ValueError("columns must be numbers, and of one length") from None
    try:
        found = numbers_of(rows)
    except ValueError:
        raise ValueError("every value of rows must be a number") from None
    if found.ndim != 2 or found.shape[1] != len(features):
        raise ValueError(f"rows must have shape (n, {len(features)}): one per feature")
    return found
