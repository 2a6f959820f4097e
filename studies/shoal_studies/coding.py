"""Turns values as data frames have them into the numbers that records hold, as a dictionary says.

A category's levels become their places, a flag 0 or 1, a date days; what is missing becomes NaN.
Places never come from numbers, and a text that is no level is refused. No library of data frames
is imported. Errors begin with what a column does: the caller names it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from numbers import Real
from typing import Any, Final, TypeGuard

import numpy as np
import pydantic
from numpy.typing import NDArray

from shoal_protocol.trust.dictionary import EPOCH, Category, Date, Flag, Number
from shoal_protocol.wire.documents import describe
from shoal_protocol.wire.encoding import canonical_text
from shoal_studies.posteriors.base import array_of, is_missing, numbers_of, require_plain

Variable = Number | Flag | Category | Date
Variables = Mapping[str, tuple[float, float] | Sequence[str] | Variable]
"""Variables by name: their bounds, their levels with the reference first, or the dictionary's."""

_HOW_DAYS: Final = ": make them days, as pandas.to_datetime does"
_SHOWN: Final = 5  # values that are no levels
_LEVELS_SHOWN: Final = 20


def coded(values: Any, variable: Variable | None) -> NDArray[np.float64]:
    """Return the numbers of one column, shape (n,), or what numbers of another shape are.

    Without a `variable` days and texts are refused.

    Raises:
        ValueError: values are not what the variable has: a number in place of a level's text, a
            text that is no level, something else than a day, or than a number.
    """
    require_plain(values)
    found = array_of(values)
    if isinstance(variable, Category):
        return _places(found, variable)
    days = _days(found)
    if days is not None:
        if isinstance(variable, Date):
            return days
        raise ValueError("holds days: every value must be a number, or its bounds be days, too")
    try:
        numbers = numbers_of(values)
    except ValueError:
        if not isinstance(variable, Date):
            raise
        raise ValueError(f"holds something else than days{_HOW_DAYS}") from None
    if isinstance(variable, Date) and np.isfinite(numbers).any():
        raise ValueError(f"holds numbers, and its values are days{_HOW_DAYS}")
    return numbers


def _places(found: NDArray[Any], variable: Category) -> NDArray[np.float64]:
    listed = found.tolist() if found.ndim == 1 else [found]
    levels = ", ".join(map(repr, variable.levels[:_LEVELS_SHOWN]))
    places: dict[str, float] = {level: float(place) for place, level in enumerate(variable.levels)}
    numbers: list[float] = []
    unknown: dict[str, None] = {}
    for each in listed:
        if is_missing(each):
            numbers.append(np.nan)
        elif isinstance(each, str):
            text = canonical_text(each)
            numbers.append(places.get(text, np.nan))
            unknown |= {} if text in places else {text: None}
        else:
            kind = "numbers" if hasattr(each, "__float__") else "something else"
            raise ValueError(
                f"holds {kind}, and its levels are the texts {levels}: write the values as the "
                "levels are spelt, or take bounds or levels without quotes"
            )
    if unknown:
        raise ValueError(
            f"holds {', '.join(map(repr, list(unknown)[:_SHOWN]))}, and has the levels {levels}"
        )
    return np.array(numbers, np.float64)


def _days(found: NDArray[Any]) -> NDArray[np.float64] | None:
    """Return days since 1970-01-01, shape (n,), where values are days or times; else None."""
    if found.dtype.kind == "M":
        days = found.astype("datetime64[D]")
        return np.where(np.isnat(days), np.nan, (days - np.datetime64(EPOCH)).astype(np.float64))
    if found.dtype.kind != "O" or found.ndim != 1:
        return None
    numbers = []
    for each in found.tolist():
        if is_missing(each):
            numbers.append(np.nan)
        elif isinstance(each, date):
            numbers.append(float((date(each.year, each.month, each.day) - EPOCH).days))
        else:
            return None
    return None if np.isnan(numbers).all() else np.array(numbers)


def _is_day(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def near_to(name: str, names: Iterable[str]) -> str:
    """Return a clause that says which names are spelt almost so, empty if none is."""
    near = get_close_matches(name, list(names), n=3)
    return f"; near to it are {', '.join(near)}" if near else ""


def is_levels(said: object) -> bool:
    """Tell whether what is said of a variable are levels, and not bounds."""
    if isinstance(said, Category):
        return True
    return (
        isinstance(said, Sequence | np.ndarray)
        and not isinstance(said, str)
        and any(isinstance(each, str) for each in said)
    )


def is_names(said: object) -> TypeGuard[Sequence[str]]:
    """Tell whether these are names of variables, and nothing else of them."""
    return (
        isinstance(said, Sequence)
        and not isinstance(said, str)
        and len(said) > 0
        and all(isinstance(each, str) for each in said)
    )


def variable_given(name: str, said: object, parameter: str) -> Variable:
    """Return the variable of which somebody says its bounds or its levels.

    Raises:
        ValueError: they are not usable; the message begins with `parameter`.
    """
    if isinstance(said, Variable):
        if said.name != name:
            raise ValueError(f"{parameter}: {name!r} is a variable of another name")
        return said
    try:
        if is_levels(said):
            texts = list(said)  # type: ignore[call-overload]
            if not is_names(texts):
                raise ValueError(
                    f"{parameter}: some levels of {name!r} are texts, and others are none: levels "
                    "are all texts, and bounds are two numbers"
                )
            levels = tuple(map(canonical_text, texts))
            if len(levels) == 2 and all(map(_is_day, levels)):
                raise ValueError(
                    f"{parameter}: {name!r} has texts for bounds: write days as "
                    "datetime.date(2020, 12, 31)"
                )
            return Category(name=name, meaning=name, levels=levels)
        if isinstance(said, Sequence | np.ndarray) and not isinstance(said, str) and len(said) == 2:
            if all(isinstance(each, date | np.datetime64) for each in said):
                first, last = np.array(said, "datetime64[D]").tolist()
                return Date(name=name, meaning=name, earliest=first, latest=last)
            if all(isinstance(each, Real) for each in said):
                return Number(name=name, meaning=name, lower=float(said[0]), upper=float(said[1]))
    except pydantic.ValidationError as error:
        raise ValueError(f"{parameter}, {name!r}: {describe(error)}") from None
    raise ValueError(
        f"{parameter}: {name!r} has bounds, two numbers or days as (18, 90), or levels, texts as "
        '("no", "yes"), the reference first'
    )


def variables_given(said: object) -> tuple[Variable, ...]:
    """Return variables: those of a sequence, or those of which a mapping says bounds or levels.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(said, Mapping):
        return tuple(
            variable_given(canonical_text(str(name)), each, "variables")
            for name, each in said.items()
        )
    listed: list[Any] = list(said) if isinstance(said, Iterable) else [None]
    if all(isinstance(each, Variable) for each in listed):
        return tuple(listed)
    raise ValueError(
        'variables are bounds or levels by name, as {"age": (18, 90), "sex": ("f", "m")}, or '
        "those of a data dictionary"
    )
