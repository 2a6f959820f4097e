"""Makes a formula's columns from variables: terms that data holders evaluate, with their bounds.

Bounds follow from the variables' by interval arithmetic. A category has one column for each level
but its reference; all of them where no other term has what the reference would stand for. Records
of none of the levels that a formula lists lack a value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
import pydantic

from shoal.formulas.parsing import Argument, Formula, Part
from shoal.formulas.variables import Known, named
from shoal_learning.coding import Variable
from shoal_protocol.queries.columns import ColumnBounds, Factor, Level, Log, Power, Spline, Term
from shoal_protocol.trust.dictionary import Category, Date, Flag
from shoal_protocol.wire.documents import describe

LONGEST_NAME: Final = 64
_DEGREE: Final = 3


@dataclass(frozen=True)
class Design:
    """A formula's features, its target and its offset, as tasks take them."""

    features: tuple[ColumnBounds, ...]
    target: ColumnBounds
    offset: ColumnBounds | None


@dataclass(frozen=True)
class _Choice:
    """One function that a part stands for; `short` is its label where the other is too long."""

    label: str
    short: str
    factor: Factor


def design(formula: Formula, known: Known) -> Design:
    """Return a formula's columns.

    Columns are centred at the middle of their bounds, and a constant in the data's units follows
    from the centres. So a formula without one has features whose bounds are about zero.

    Raises:
        ValueError: a variable is unknown, or not of the kind that the formula takes it for.
    """
    offset = None if formula.offset is None else single(formula.offset, "offset", known)
    return Design(features_of(formula, known), single(formula.target, "target", known), offset)


def features_of(formula: Formula, known: Known) -> tuple[ColumnBounds, ...]:
    """Return the columns of a formula's terms.

    Raises:
        ValueError: as `design`.
    """
    features: list[ColumnBounds] = []
    spanned: set[frozenset[Part]] = {frozenset()} if formula.constant else set()
    for term in formula.terms:
        parts = frozenset(term)
        choices = []
        for part in term:
            is_reduced = parts - {part} in spanned
            choices.append(_choices(part, known, reduced=is_reduced))
            if not is_reduced and _is_categorical(part, known):
                spanned.add(parts - {part})
        spanned.add(parts)
        features += [_column(term, chosen, known) for chosen in product(*choices)]
    if not formula.constant:
        features = [about_zero(each) for each in features]
    return tuple(features)


def about_zero(column: ColumnBounds) -> ColumnBounds:
    """Return a column with bounds that have zero in their middle."""
    largest = max(abs(column.lower), abs(column.upper))
    return column.model_copy(update={"lower": -largest, "upper": largest})


def level_columns(name: str, known: Known) -> tuple[ColumnBounds, ...]:
    """Return one column for each level of a category but its reference.

    Raises:
        ValueError: it is no category.
    """
    part = Part(name, "category", name)
    return tuple(_column((part,), (each,), known) for each in _choices(part, known, reduced=True))


def levels_of(part: Part, known: Known) -> list[tuple[str, float]]:
    """Return a category's levels, the reference first, as names and as what records hold.

    Raises:
        ValueError: it is no category.
    """
    if not _is_categorical(part, known):
        raise ValueError(
            f"{part.text!r} is no category: name one, or list its levels, as "
            f"C({part.variable}, levels=[1, 2, 3])"
        )
    variable: Variable = named(known.variables, part.variable)
    listed = _listed(part, variable)
    reference = _reference(part, variable, listed, known)
    return sorted(listed, key=lambda level: level[1] != reference)


def single(part: Part, what: str, known: Known) -> ColumnBounds:
    """Return the one column of a part, which is the `what` of a regression.

    Raises:
        ValueError: it has several, or as `design`.
    """
    found = _choices(part, known, reduced=True)
    if len(found) != 1 and _is_categorical(part, known):
        levels = [name for name, _ in levels_of(part, known)]
        raise ValueError(
            f"the {what} {part.text!r} has the levels {', '.join(levels[:20])}: name the one that "
            f'is 1, as level({part.variable}, "{levels[-1]}") does'
        )
    if len(found) != 1:
        raise ValueError(
            f'the {what} {part.text!r} has {len(found)} columns: name one, as level(x, "yes") does'
        )
    return _column((part,), (found[0],), known)


def _column(term: Sequence[Part], chosen: Sequence[_Choice], known: Known) -> ColumnBounds:
    """Return a term's column; a number or flag by itself is the variable's own."""
    [first, *others] = term
    if first.kind == "itself" and not others and not _is_categorical(first, known):
        variable: Variable = named(known.variables, first.variable)
        return variable.bounds
    label = ":".join(each.label for each in chosen)
    if len(label) > LONGEST_NAME or not label.isprintable():
        label = ":".join(each.short for each in chosen)
    if len(label) > LONGEST_NAME:
        raise ValueError("a term's name would be longer than 64 characters: shorten the variables'")
    try:
        return ColumnBounds.of_term(label, Term(factors=tuple(each.factor for each in chosen)))
    except pydantic.ValidationError as error:
        raise ValueError(f"the term {label}: {describe(error)}") from None


def _is_categorical(part: Part, known: Known) -> bool:
    if part.kind == "category":
        return True
    is_text = isinstance(named(known.variables, part.variable), Category)
    return part.kind == "itself" and is_text


def _choices(part: Part, known: Known, *, reduced: bool) -> list[_Choice]:
    variable = named(known.variables, part.variable)
    if _is_categorical(part, known):
        return _levels(part, variable, known, reduced=reduced)
    if part.kind == "level":
        label, value = _level(part, variable, part.arguments["level"])
        return [_Choice(part.text, f"{part.variable}[{label}]", _at(variable, value))]
    if isinstance(variable, Category):
        raise ValueError(f"{part.text!r}: a category is no quantity; write C({variable.name})")
    try:
        if part.kind == "spline":
            return _splines(part, variable)
        return [_Choice(part.text, part.text, _quantity(part, variable))]
    except pydantic.ValidationError as error:
        raise ValueError(f"{part.text!r}: {describe(error)}") from None


def _quantity(part: Part, variable: Any) -> Factor:
    lower, upper = variable.limits
    if part.kind == "log":
        lower = part.arguments.get("lower", lower)
        if not isinstance(lower, float | int) or lower <= 0.0:
            raise ValueError(
                f"{part.text!r} needs a lower bound above 0, to which values are cut: "
                f"log({variable.name}, 0.1)"
            )
        return Log(variable=variable.name, lower=lower, upper=upper)
    exponent = int(part.arguments.get("exponent", 1))  # type: ignore[arg-type]
    return Power(variable=variable.name, lower=lower, upper=upper, exponent=exponent)


def _splines(part: Part, variable: Any) -> list[_Choice]:
    """Return a basis of splines but the first, which the others give with the constant."""
    lower, upper = variable.limits
    knots = part.arguments.get("knots")
    if knots is None:
        columns = part.arguments["columns"]
        if not isinstance(columns, float) or columns not in range(_DEGREE, _DEGREE + 33):
            raise ValueError(f"{part.text!r} has a whole number of columns, {_DEGREE} at least")
        inner = int(columns) - _DEGREE
        knots = tuple(np.linspace(lower, upper, inner + 2)[1:-1].tolist())
    if not isinstance(knots, tuple):
        raise ValueError(f"{part.text!r}: knots are a list of numbers")
    found = []
    for place in range(1, len(knots) + _DEGREE + 1):
        factor = Spline(variable=variable.name, lower=lower, upper=upper, knots=knots, place=place)  # type: ignore[arg-type]
        label = f"{part.text}[{place}]"
        found.append(_Choice(label, label, factor))
    return found


def _levels(part: Part, variable: Any, known: Known, *, reduced: bool) -> list[_Choice]:
    listed = _listed(part, variable)
    reference = _reference(part, variable, listed, known)
    among = tuple(value for _, value in listed) if "levels" in part.arguments else ()
    found = [
        _Choice(f"{part.text}[{label}]", f"{part.text}[#{place}]", _at(variable, value, among))
        for place, (label, value) in enumerate(listed)
        if not (reduced and value == reference)
    ]
    if reduced and len(found) == len(listed):
        raise ValueError(f"{part.text!r}: the reference is none of the levels")
    return found


def _reference(
    part: Part, variable: Any, listed: Sequence[tuple[str, float]], known: Known
) -> float:
    """Return what records of the reference level hold."""
    default = known.references.get(part.variable, listed[0][0])
    return _level(part, variable, part.arguments.get("reference", default))[1]


def _listed(part: Part, variable: Any) -> list[tuple[str, float]]:
    """Return the levels, as names and as what records hold."""
    given = part.arguments.get("levels")
    if isinstance(variable, Category) and given is None:
        return [(level, float(place)) for place, level in enumerate(variable.levels)]
    if isinstance(variable, Flag) and given is None:
        return [("0", 0.0), ("1", 1.0)]
    if not isinstance(given, tuple) or isinstance(variable, Date) or len(given) < 2:
        raise ValueError(
            f"{part.text!r}: {variable.name!r} is no category; list its levels, as "
            f"C({variable.name}, levels=[1, 2, 3])"
        )
    return [_level(part, variable, each) for each in given]


def _level(part: Part, variable: Any, level: Argument) -> tuple[str, float]:
    """Return a level's name, and what records hold for it."""
    if isinstance(variable, Category):
        if level not in variable.levels:
            raise ValueError(
                f"{part.text!r}: {level!r} is no level of {variable.name!r}, which has "
                f"{', '.join(variable.levels[:20])}"
            )
        return str(level), float(variable.levels.index(str(level)))
    if isinstance(level, str):
        try:
            level = float(level)
        except ValueError:
            raise ValueError(f"{part.text!r}: {variable.name!r} has numbers for levels") from None
    if not isinstance(level, float | int) or not variable.limits[0] <= level <= variable.limits[1]:
        raise ValueError(f"{part.text!r}: a level is beyond the bounds of {variable.name!r}")
    return f"{level:.15g}", float(level)


def _at(variable: Any, value: float, among: tuple[float, ...] = ()) -> Level:
    return Level(variable=variable.name, value=value, among=among)
