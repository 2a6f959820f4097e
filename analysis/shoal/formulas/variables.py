"""The variables that a formula or features may name: their bounds or levels, as a user gives them.

Levels are those of the data dictionary where there is one, which says what each level's place is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from numbers import Real
from typing import Any, Self, TypeGuard

import numpy as np
import pydantic

from shoal_learning.coding import near_to
from shoal_protocol.trust.dictionary import Category, Date, Flag, Number
from shoal_protocol.wire.documents import describe
from shoal_protocol.wire.texts import canonical_text

Variable = Number | Flag | Category | Date
Variables = Mapping[str, tuple[float, float] | Sequence[str] | Variable]
"""Variables by name: their bounds, their levels with the reference first, or the dictionary's."""


@dataclass(frozen=True)
class Known:
    """Variables by name, and the reference of those whose levels were given in an order.

    Who `counts_others` may name some of the levels that a dictionary has.
    """

    variables: Mapping[str, Variable] = field(default_factory=dict)
    references: Mapping[str, str] = field(default_factory=dict)
    counts_others: bool = False

    @classmethod
    def given(cls, variables: object, parameter: str) -> Self:
        """Return what a user says of variables.

        Raises:
            ValueError: it is not usable; the message begins with `parameter`.
        """
        if not isinstance(variables, Mapping):
            raise ValueError(f'{parameter} must be a mapping, as {{"age": (18, 90)}}')
        found = cls()
        for name, said in variables.items():
            found = found.and_one(canonical_text(str(name)), said, parameter)
        return found

    def and_one(self, name: str, said: object, parameter: str) -> Self:
        """Return these and one more variable.

        Raises:
            ValueError: as `given`.
        """
        variable = variable_given(name, said, parameter)
        more: dict[str, Variable] = {name: variable}
        if variable.indicator is not None:
            more[variable.indicator.name] = variable.indicator
        references = dict(self.references)
        if isinstance(variable, Category):
            references[name] = variable.levels[0]
        return replace(self, variables={**self.variables, **more}, references=references)

    def over(self, dictionary: Mapping[str, Variable]) -> Self:
        """Return what is known with a dictionary: bounds are these, places of levels are its own.

        Raises:
            ValueError: the dictionary has other levels.
        """
        known = {**dictionary, **self.variables}
        for name, variable in self.variables.items():
            agreed = dictionary.get(name)
            if not isinstance(variable, Category) or agreed is None:
                continue
            levels = agreed.levels if isinstance(agreed, Category) else ()
            unknown = [level for level in variable.levels if level not in levels]
            if unknown or (len(levels) > len(variable.levels) and not self.counts_others):
                raise ValueError(
                    f"{name!r} has other levels in the data dictionary: {', '.join(levels)}"
                    if levels
                    else f"{name!r} has no levels in the data dictionary: give bounds, as two "
                    "numbers, or leave them out"
                )
            known[name] = agreed
        return replace(self, variables=known)


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


def named(variables: Mapping[str, Variable], name: str) -> Any:
    """Return the variable of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in variables:
        base = name.removesuffix("_missing")
        if base != name and base in variables:
            raise ValueError(f"{base!r} has no indicator of missing values in the data dictionary")
        near = near_to(name, variables)
        raise ValueError(
            f"there is no variable {name!r}{near}: correct it, or give bounds or levels in "
            f"`variables`, as {{{name!r}: (0, 1)}}"
            if near
            else f"there is no variable {name!r}: give its bounds or levels in `variables`, as "
            f"{{{name!r}: (0, 1)}}"
        )
    return variables[name]
