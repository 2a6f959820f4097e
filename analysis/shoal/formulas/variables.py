"""The variables that a formula or features may name: their bounds or levels, as a user gives them.

Levels are those of the data dictionary where there is one, which says what each level's place is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from shoal_learning.coding import Variable, near_to, variable_given
from shoal_protocol.trust.dictionary import Category
from shoal_protocol.wire.encoding import canonical_text


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
