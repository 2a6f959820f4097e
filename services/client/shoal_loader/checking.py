"""Says what `records.toml` makes of raw data, in counts, for the owner's terminal alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal_loader.loading import Evaluated


def report(found: Evaluated, bounds: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Return counts, and for each variable what it is made of and what is wrong with it.

    `outside_bounds` is the share of a variable's values outside its `bounds`, as (lower, upper);
    None of one without bounds.

    Raises:
        ValueError: bounds are given for what is no variable.
    """
    variables = found.mapping.columns
    if strangers := sorted(set(bounds) - set(variables)):
        raise ValueError(f"records.toml maps no column {strangers[0]!r}")
    return {
        "records": len(found.ids),
        "rows": len(found.values),
        "records_with_more_rows_than_count": int(
            (np.diff(found.starts) > found.mapping.rows_per_record).sum()
        ),
        "variables": [
            {
                "variable": name,
                "type": column.type,
                "made_of": column.sql,
                "missing": int(np.isnan(found.values[:, place]).sum()),
                "unknown_levels": found.unknown.get(name),
                "outside_bounds": _share_outside(found.values[:, place], bounds.get(name)),
                "fault": found.faults.get(name),
            }
            for place, (name, column) in enumerate(variables.items())
        ],
    }


def _share_outside(
    values: np.ndarray[Any, np.dtype[np.float64]], bounds: tuple[float, float] | None
) -> float | None:
    there = values[~np.isnan(values)]
    if bounds is None or not len(there):
        return None
    return float(((there < bounds[0]) | (there > bounds[1])).mean())
