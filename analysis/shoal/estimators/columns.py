"""Reads an estimator's columns: bounds or levels as a user writes them, and rows to predict.

Rows are arrays, or have columns by name as pandas and Polars data frames do; neither library is
imported. Messages name columns, never values.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shoal.formulas import Known, variable_columns
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.design import Floats
from shoal_protocol.trust.dictionary import Category, Date
from shoal_protocol.wire.encoding import canonical_text
from shoal_studies.coding import Variable, coded, is_names, near_to
from shoal_studies.posteriors.base import array_of, columns_of, numbers_of

Bounds = Mapping[str, tuple[float, float] | Sequence[str]] | Sequence[ColumnBounds] | ColumnBounds
"""Columns with their public bounds, {"age": (18, 90)}, or levels, {"smoker": ("no", "yes")}, the
reference first; or `ColumnBounds`."""


_LARGEST: Final = 1e150  # squares of differences from it are still floats, and sums of them


def levels_in(columns: object, parameter: str) -> Known:
    """Return the variables whose levels, or days for bounds, a parameter of an estimator gives.

    Raises:
        ValueError: they are neither these nor bounds; the message begins with `parameter`.
    """
    said = columns if isinstance(columns, Mapping) else {}
    variables = Known.given(said, parameter).variables
    chosen = {name: each for name, each in variables.items() if isinstance(each, Category | Date)}
    return Known.given(chosen, parameter)


def bounds_of(columns: object, parameter: str, known: Known) -> tuple[ColumnBounds, ...]:
    """Return the columns that a parameter of an estimator names, in order.

    Of levels, one for each but the reference; places are those that are `known`. Of names alone,
    the bounds or levels that are known.

    Raises:
        ValueError: they are no bounds; the message begins with `parameter`.
    """
    if isinstance(columns, ColumnBounds):
        return (columns,)
    if isinstance(columns, Sequence) and all(isinstance(each, ColumnBounds) for each in columns):
        return tuple(columns)
    if isinstance(columns, Mapping):
        known = Known.given(columns, parameter).over(known.variables)
    elif not is_names(columns):
        raise ValueError(
            f'{parameter} must be a mapping from names to bounds, as {{"age": (18, 90)}}, or to '
            'levels, or a list of names that the data dictionary has, as ["age"], or ColumnBounds'
        )
    names = [canonical_text(str(name)) for name in columns]
    return tuple(each for name in names for each in variable_columns(name, known))


def matrix_of(rows: Any, columns: Sequence[str], variables: Mapping[str, Variable]) -> Floats:
    """Return numbers, shape (n, len(columns)), in the order of `columns`.

    Columns are matched by name where `rows` has names, others than `columns` are left out; an array
    without names must have exactly these columns. Levels of `variables` become their places.

    Raises:
        ValueError: a column is missing, or the shape or a value is not usable.
    """
    found = columns_of(rows)
    if found is None:
        found = _by_position(rows, columns)
    elif missing := [name for name in columns if name not in found]:
        near = near_to(missing[0], found)
        raise ValueError(f"the rows have no column {', '.join(map(repr, missing))}{near}")
    parts = [_of_variable(name, found[name], variables.get(name)) for name in columns]
    if any(part.ndim != 1 or len(part) != len(parts[0]) for part in parts):
        raise ValueError("the columns must be vectors of one length: of a table take x[:, 0]")
    gaps = [name for name, part in zip(columns, parts, strict=True) if not np.isfinite(part).all()]
    if gaps:
        named = ", ".join(map(repr, gaps))
        raise ValueError(f"a value is missing, or infinite, in {named}: leave out such rows")
    if not len(parts[0]):
        raise ValueError("rows must be one or more")
    return np.column_stack(parts)


def vector_of(values: Any, what: str) -> Floats:
    """Return numbers, shape (n,), from a vector or from a table of one column.

    Raises:
        ValueError: they are none.
    """
    try:
        numbers = numbers_of(values)
    except ValueError as error:
        raise ValueError(f"{what}: a vector of them {error}") from None
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise ValueError(f"{what} must be a vector of finite numbers")
    if np.abs(numbers).max() > _LARGEST:
        raise ValueError(f"{what} must not be above {_LARGEST:g} in magnitude")
    return numbers


def _by_position(rows: Any, columns: Sequence[str]) -> dict[str, Any]:
    """Return the columns of rows without names.

    Raises:
        ValueError: these are not two-dimensional, or not as many.
    """
    found = rows if isinstance(rows, np.ndarray) else array_of(rows)
    if found.ndim != 2:
        raise ValueError("rows must have two dimensions; one row is [[...]]")
    if found.shape[1] != len(columns):
        raise ValueError(f"rows have {found.shape[1]} columns, not {len(columns)}")
    return dict(zip(columns, found.T, strict=True))


def _of_variable(name: str, values: Any, variable: Variable | None) -> NDArray[np.float64]:
    try:
        return coded([values] if np.ndim(values) == 0 else values, variable)
    except ValueError as error:
        raise ValueError(f"column {name!r} {error}") from None
