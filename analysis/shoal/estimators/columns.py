"""Reads an estimator's columns: bounds or levels as a user writes them, and rows to predict.

Rows are arrays, or have columns by name as pandas and Polars data frames do; neither library is
imported. Messages name columns, never values.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pydantic
from numpy.typing import NDArray

from shoal.formulas.designing import level_columns
from shoal.formulas.variables import Known, Variable, is_levels
from shoal_learning.coding import coded, near_to
from shoal_protocol.posteriors.rows import names_of
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.trust.dictionary import Category
from shoal_protocol.wire.documents import describe

Bounds = Mapping[str, tuple[float, float] | Sequence[str]] | Sequence[ColumnBounds] | ColumnBounds
"""Columns with their public bounds, {"age": (18, 90)}, or levels, {"smoker": ("no", "yes")}, the
reference first; or `ColumnBounds`."""

NOTHING_KNOWN: Final = Known()

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]

_LARGEST: Final = 1e150  # squares of differences from it are still floats, and sums of them


def levels_in(columns: object, parameter: str) -> Known:
    """Return the variables whose levels a parameter of an estimator gives.

    Raises:
        ValueError: they are no levels; the message begins with `parameter`.
    """
    given = columns.items() if isinstance(columns, Mapping) else ()
    return Known.given({name: said for name, said in given if is_levels(said)}, parameter)


def bounds_of(
    columns: object, parameter: str, known: Known = NOTHING_KNOWN
) -> tuple[ColumnBounds, ...]:
    """Return the columns that a parameter of an estimator names, in order.

    Of levels, one for each but the reference; places are those that are `known`.

    Raises:
        ValueError: they are no bounds; the message begins with `parameter`.
    """
    if isinstance(columns, ColumnBounds):
        return (columns,)
    if isinstance(columns, Mapping):
        known = levels_in(columns, parameter).over(known.variables)
        return tuple(
            column
            for name, said in columns.items()
            for column in (
                level_columns(str(name), known)
                if is_levels(said)
                else (_bounds(name, said, parameter),)
            )
        )
    if isinstance(columns, Sequence) and all(isinstance(each, ColumnBounds) for each in columns):
        return tuple(columns)
    raise ValueError(
        f'{parameter} must be a mapping from names to bounds, as {{"age": (18, 90)}}, or to '
        "levels, or ColumnBounds"
    )


def one_of(columns: object, parameter: str, known: Known = NOTHING_KNOWN) -> ColumnBounds:
    """Return the bounds of a parameter that takes one column.

    Raises:
        ValueError: they are no bounds, or not of one column.
    """
    found = bounds_of(columns, parameter, known)
    if len(found) != 1:
        raise ValueError(f"{parameter} must be one column with its bounds, not {len(found)}")
    return found[0]


def _bounds(name: object, pair: object, parameter: str) -> ColumnBounds:
    if not isinstance(pair, Sequence | np.ndarray) or isinstance(pair, str) or len(pair) != 2:
        raise ValueError(f"{parameter}: the bounds of a column are a pair (lower, upper)")
    try:
        return ColumnBounds(name=str(name), lower=pair[0], upper=pair[1])
    except pydantic.ValidationError as error:
        raise ValueError(f"{parameter}: {describe(error)}") from None


def matrix_of(
    rows: Any, columns: Sequence[str], variables: Mapping[str, Variable] | None = None
) -> FloatMatrix:
    """Return numbers, shape (n, len(columns)), in the order of `columns`.

    Columns are matched by name where `rows` has names, others than `columns` are left out; an array
    without names must have exactly these columns. Levels of `variables` become their places.

    Raises:
        ValueError: a column is missing, or the shape or a number is not usable.
    """
    names = names_of(rows)
    if names is None:
        return _checked(_numbers(rows), len(columns))
    missing = [name for name in columns if name not in names]
    if missing:
        near = near_to(missing[0], names)
        raise ValueError(f"the rows have no column {', '.join(map(repr, missing))}{near}")
    known = variables or {}
    parts = [np.atleast_1d(_of_variable(name, rows[name], known.get(name))) for name in columns]
    if any(part.ndim != 1 or len(part) != len(parts[0]) for part in parts):
        raise ValueError("the columns must be vectors of one length")
    gaps = [name for name, part in zip(columns, parts, strict=True) if not np.isfinite(part).all()]
    if gaps:
        named = ", ".join(map(repr, gaps))
        raise ValueError(f"a value is missing, or infinite, in {named}: leave out such rows")
    return _checked(np.column_stack(parts), len(columns))


def vector_of(values: Any, what: str) -> FloatVector:
    """Return numbers, shape (n,), from a vector or from a table of one column.

    Raises:
        ValueError: they are none.
    """
    numbers = _numbers(values)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise ValueError(f"{what} must be a vector of finite numbers")
    if np.abs(numbers).max() > _LARGEST:
        raise ValueError(f"{what} must not be above {_LARGEST:g} in magnitude")
    return numbers


def _of_variable(name: str, values: Any, variable: Variable | None) -> NDArray[np.float64]:
    found = np.asarray(values)
    is_text = found.dtype.kind in "OUT" and isinstance(variable, Category)
    if variable is None or not (is_text or found.dtype.kind == "M"):
        try:
            return _numbers(values)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None
    numbers = coded(np.atleast_1d(found), variable)
    if np.isnan(numbers).any():
        levels = variable.levels[:20] if isinstance(variable, Category) else ()
        of_these = f", or none of the levels {', '.join(levels)}" if levels else ""
        raise ValueError(f"column {variable.name!r}: a value is missing{of_these}")
    return numbers


def _numbers(values: Any) -> NDArray[np.float64]:
    if np.ma.is_masked(values):
        raise ValueError("a value is masked: leave out what is missing, or fill it in")
    try:
        found = np.asarray(values)
        if found.dtype.kind in "cmM":  # a cast would drop a part, or count nanoseconds
            raise TypeError
        return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("every value must be a number: code categories as numbers") from None


def _checked(matrix: NDArray[np.float64], width: int) -> FloatMatrix:
    if matrix.ndim != 2:
        raise ValueError("rows must have two dimensions; one row is [[...]]")
    if matrix.shape[1] != width:
        raise ValueError(f"rows have {matrix.shape[1]} columns, not {width}")
    if not len(matrix) or not np.isfinite(matrix).all():
        raise ValueError("rows must be one or more, with finite numbers only")
    return matrix
