"""Turns values as data frames have them into the numbers that records hold, as a dictionary says.

A category's levels become their places, a flag 0 or 1, a date days; what is missing, and a text
that is no level, becomes NaN. No library of data frames is imported.
"""

from collections.abc import Iterable, Mapping
from datetime import date
from difflib import get_close_matches
from typing import Any, Final

import numpy as np
import pydantic
from numpy.typing import NDArray

from shoal_protocol.trust.dictionary import EPOCH, MOST_LEVELS, Category, Date, Flag, Number

Variable = Number | Flag | Category | Date

_FLAG_VALUES: Final = frozenset({0.0, 1.0})
_HOW_DAYS: Final = ": make them days, as pandas.to_datetime does"
_MISSING: Final = frozenset({"NAType", "NaTType"})  # pandas' own


def coded(values: Any, variable: Variable | None) -> NDArray[np.float64]:
    """Return the numbers of one column, shape (n,), or what numbers of another shape are.

    Numbers stay as they are: those of a category are places.

    Raises:
        TypeError, ValueError: a value is a text, and the variable is no category, or is something
            else.
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
    if value is None or type(value).__name__ in _MISSING:
        return np.nan
    if isinstance(value, date):
        return float((date(value.year, value.month, value.day) - EPOCH).days)
    if hasattr(value, "__float__"):
        return float(value)
    raise TypeError("a column holds numbers, texts or days")


def levels_of(values: Any) -> tuple[str, ...] | None:
    """Return the texts of a column: in the order of its categories, if it has any, else sorted."""
    found = np.asarray(values)
    if found.ndim != 1 or found.dtype.kind not in "OUT":
        return None
    texts = {str(each) for each in found if isinstance(each, str)}
    ordered = getattr(getattr(values, "dtype", None), "categories", ())
    if texts and all(isinstance(each, str) for each in ordered) and texts <= set(ordered):
        return tuple(map(str, ordered))
    return tuple(sorted(texts)) or None


def variable_of(name: str, values: Any) -> Variable | None:
    """Return the variable that a column looks like, or None if it is none.

    Its levels, sorted, and its bounds are those of the values: only where there is no privacy.
    """
    found = np.asarray(values)
    try:
        if found.ndim != 1:
            return None
        if levels := levels_of(values):
            is_category = 2 <= len(levels) <= MOST_LEVELS
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


def fault_of_values(values: Any) -> str:
    """Return in words, without a value, what a column is that `variable_of` takes for none."""
    levels = levels_of(values)
    if levels is not None and len(levels) > MOST_LEVELS:
        found = f"{len(levels):,} different texts, and a category has {MOST_LEVELS:,} at most"
        return f"holds {found}{_HOW_DAYS if _is_day(levels[0]) else ''}"
    if levels is not None:
        one, odd = "one text only: give its levels", "a text that is empty, or too long for a level"
        return f"holds {one if len(levels) == 1 else odd}"
    try:
        numbers = coded(values, None)
    except (TypeError, ValueError):
        return "holds neither numbers nor texts nor days"
    return "is the same in all records" if np.isfinite(numbers).any() else "has no value"


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def near_to(name: str, names: Iterable[str]) -> str:
    """Return a clause that says which names are spelt almost so, empty if none is."""
    near = get_close_matches(name, list(names), n=3)
    return f"; near to it are {', '.join(near)}" if near else ""
