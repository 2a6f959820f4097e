"""Reads a simulation's records from columns by name: a mapping, or a data frame."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def by_column(
    records: Mapping[str, ArrayLike] | Any,
    *,
    missing: bool = False,
) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return the columns' names and a copy of their values, shape (records, columns).

    With `missing` a value may be NaN.

    Raises:
        ValueError: they are not vectors of finite numbers of one length.
    """
    names = records.keys() if isinstance(records, Mapping) else records.columns
    try:
        values = np.column_stack([np.array(records[name], dtype=np.float64) for name in names])
    except (TypeError, ValueError):
        raise ValueError("records must have columns of numbers, all of one length") from None
    if not np.all(np.isfinite(values) | (missing & np.isnan(values))):
        raise ValueError("every value must be a finite number")
    return tuple(str(name) for name in names), values
