"""Turns values as data frames have them into the numbers that records hold, as a dictionary says.

A category's levels become their places, a flag 0 or 1, a date days; what is missing, and a text
that is no level, becomes NaN. No library of data frames is imported.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any, Final

import numpy as np
import pydantic
from numpy.typing import NDArray

from shoal_protocol.trust.dictionary import EPOCH, MOST_LEVELS, Category, Date, Flag, Number

Variable = Number | Flag | Category | Date

_FLAG_VALUES: Final = frozenset({0.0, 1.0})


def coded(values: Any, variable: Variable | None) -> NDArray[np.float64]:
    """Return the numbers of one column, shape (n,), or what numbers of another shape are.

    Numbers stay as they are: those of a category are places.

    Raises:
        TypeError, ValueError: a value is a text, and the variable is no category.
    """
    found = np.asarray(values)
    if found.dtype.kind == "M":
        days = found.astype("datetime64[D]")
        return np.where(np.isnat(days), np.nan, (days - np.datetime64(EPOCH)).astype(np.float64))
    if found.dtype.kind in "biuf":
        return found.astype(np.float64)
    if found.dtype.kind not in "OUT" or found.ndim != 1:
        raise TypeError("a column holds numbers, texts or days")
    places: Mapping[str, float] = {}
    if isinstance(variable, Category):
        places = {level: float(place) for place, level in enumerate(variable.levels)}
    elif any(isinstance(each, str) for each in found):
        raise ValueError("a text stands where a number is due")
    return np.array([_number(each, places) for each in found], np.float64)


def _number(value: Any, places: Mapping[str, float]) -> float:
    if isinstance(value, str):
        return places.get(value, np.nan)
    if isinstance(value, date):
        return float((date(value.year, value.month, value.day) - EPOCH).days)
    if isinstance(value, bool | int | float | np.bool_ | np.number):
        return float(value)
    return np.nan  # None, and what libraries have in place of it


def variable_of(name: str, values: Any) -> Variable | None:
    """Return the variable that a column looks like, or None if it is none.

    Its levels, sorted, and its bounds are those of the values: only where there is no privacy.
    """
    found = np.asarray(values)
    try:
        if found.ndim != 1:
            return None
        if texts := {str(each) for each in found if isinstance(each, str)}:
            is_category = 2 <= len(texts) <= MOST_LEVELS
            levels = tuple(sorted(texts))
            return Category(name=name, meaning=name, levels=levels) if is_category else None
        numbers = coded(found, None)
        numbers = numbers[np.isfinite(numbers)]
        if numbers.size and _FLAG_VALUES.issuperset(numbers.tolist()):
            return Flag(name=name, meaning=name)
        lower, upper = float(numbers.min()), float(numbers.max())
        if found.dtype.kind == "M":
            first, last = (date.fromordinal(EPOCH.toordinal() + int(day)) for day in (lower, upper))
            return Date(name=name, meaning=name, earliest=first, latest=last)
        return Number(name=name, meaning=name, lower=lower, upper=upper)
    except (TypeError, ValueError, pydantic.ValidationError):  # constant, empty, or of other things
        return None
