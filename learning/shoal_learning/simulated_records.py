"""Reads a simulation's records from columns by name: a mapping, or a data frame."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal_learning.coding import Variable, coded, fault_of_values, levels_of, near_to, variable_of
from shoal_protocol.trust.dictionary import MOST_LEVELS, Category


@dataclass(frozen=True)
class SimulatedRecords:
    """Columns by name, shape (records, columns), as numbers that records hold; NaN where missing.

    `variables` say what the numbers of a column mean, as far as is known. Columns in `faults` are
    of none: what they are instead. Numbers of a text are places among its `levels`, and those in
    `unusable` are none. `is_agreed` is whether the variables were given, and not made from the
    columns.
    """

    names: tuple[str, ...]
    values: NDArray[np.float64]
    variables: Mapping[str, Variable]
    levels: Mapping[str, tuple[str, ...]]
    faults: Mapping[str, str]
    unusable: frozenset[str]
    is_agreed: bool = False

    @classmethod
    def of(
        cls,
        records: Mapping[str, ArrayLike] | Any,
        variables: Iterable[Variable] | None = None,
        *,
        missing: bool,
    ) -> Self:
        """Copy the columns of a mapping or a data frame; with `missing` a number may be NaN.

        Without `variables` they are made from the columns.

        Raises:
            ValueError: a number is not finite, or columns are no vectors of one length or have no
                names.
        """
        if not isinstance(records, Mapping) and not hasattr(records, "columns"):
            raise ValueError(
                "records have columns by name: a data frame, or a mapping such as "
                '{"age": array[:, 0], "sex": array[:, 1]}'
            )
        keys = list(records.keys() if isinstance(records, Mapping) else records.columns)
        if variables is None:
            made = (variable_of(str(key), records[key]) for key in keys)
            known = {each.name: each for each in made if each is not None}
        else:
            known = {each.name: each for each in variables}
        columns, unusable, faults = [], set(), {}
        levels: dict[str, tuple[str, ...]] = {}
        for key in keys:
            name, variable, texts = str(key), known.get(str(key)), levels_of(records[key])
            if isinstance(variable, Category):
                texts = variable.levels
            elif variable is None and variables is None:
                faults[name] = fault_of_values(records[key])
                if texts is not None and len(texts) <= MOST_LEVELS:  # of one level, none yet
                    variable = Category.model_construct(name=name, meaning=name, levels=texts)
            try:
                columns.append(coded(records[key], variable))
                levels |= {} if texts is None else {name: texts}
            except (TypeError, ValueError):
                columns.append(np.full(np.shape(records[key]), np.nan))
                unusable.add(name)
        try:
            values = np.column_stack(columns)
        except ValueError:
            values = np.empty(0)
        if values.shape != (len(values), len(keys)) or any(each.ndim != 1 for each in columns):
            raise ValueError("records must have columns of one length")
        names = tuple(map(str, keys))
        text = [name in unusable or name in levels for name in names]
        fine = np.isfinite(values) | np.isnan(values) & (missing | np.array(text, bool))
        if not np.all(fine):
            [wrong, *_] = np.array(names)[~fine.all(axis=0)].tolist()
            raise ValueError(f"column {wrong!r}: every value must be a finite number")
        found = cls(
            names, values, known, levels, faults, frozenset(unusable), variables is not None
        )
        for each in () if variables is None else variables:
            found = found._with_indicator(each)
        return found

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.values)

    def of_clients(self, key: Any) -> Self:
        """Return the records at positions."""
        return replace(self, values=self.values[key])

    def select(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return a copy of these columns, shape (records, len(names)).

        Raises:
            ValueError: one is missing, or holds neither numbers nor levels.
        """
        self._require_columns(names)
        for name in names:
            if name in self.unusable or (name in self.levels and name not in self.variables):
                raise ValueError(f"column {name!r} {self.faults.get(name, 'holds no numbers')}")
        return self.values[:, [self.names.index(name) for name in names]]

    def require_variables(self, names: Iterable[str]) -> None:
        """Check that columns are what variables can be, if none were agreed.

        Raises:
            ValueError: one is not; the message says what it is instead.
        """
        if self.is_agreed:
            return
        for name in sorted(names):
            base = name.removesuffix("_missing")
            if name not in self.names and base != name and base in self.names:
                raise ValueError(
                    f"{base!r} has no indicator of missing values here: give the variable, as "
                    f"variables={{{base!r}: Number(name={base!r}, meaning='...', lower=0, upper=1, "
                    "missing='indicator')} of shoal_protocol.trust.dictionary"
                )
            self._require_columns([name])
            if name not in self.variables:
                raise ValueError(f"column {name!r} {self.faults[name]}")

    def _require_columns(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.names:
                near = near_to(name, self.names)
                raise ValueError(f"the records have no column {name!r}{near}")

    def with_variables(self, given: Mapping[str, Variable], *, counts_others: bool = False) -> Self:
        """Return the same records by other levels and bounds; those that were agreed stay.

        A value that is none of the levels given is missing; if somebody `counts_others`, levels
        that are not given come after those that are.

        Raises:
            ValueError: a level given is none of the records', and one of these is not given.
        """
        if self.is_agreed:
            return self
        values, known, levels = self.values.copy(), {**self.variables, **given}, {**self.levels}
        for name, variable in given.items():
            own = self.levels.get(name)
            if own is not None and isinstance(variable, Category):
                absent = [level for level in variable.levels if level not in own]
                rest = [level for level in own if level not in variable.levels]
                if absent and rest:
                    raise ValueError(
                        f"{name!r} is {', '.join(map(repr, rest[:5]))} in the records, and never "
                        f"{', '.join(map(repr, absent[:5]))}"
                    )
                if counts_others:
                    variable = variable.model_copy(update={"levels": (*variable.levels, *rest)})
                    known[name] = variable
                places = coded(np.array(own, object), variable)
                levels[name] = variable.levels
                column = self.names.index(name)
                is_there = ~np.isnan(values[:, column])
                values[is_there, column] = places[values[is_there, column].astype(np.intp)]
        found = replace(self, values=values, variables=known, levels=levels)
        for variable in given.values():
            found = found._with_indicator(variable)
        return found

    def _with_indicator(self, variable: Variable) -> Self:
        """Return records with a variable's indicator, and gaps filled, as a holder loads them."""
        indicator = variable.indicator
        if indicator is None or variable.name not in self.names or indicator.name in self.names:
            return self
        values = self.values.copy()
        column = self.names.index(variable.name)
        gaps = np.isnan(values[:, column])
        values[gaps, column] = variable.in_place_of_missing
        return replace(
            self,
            names=(*self.names, indicator.name),
            values=np.column_stack([values, gaps]),
            variables={**self.variables, indicator.name: indicator},
        )


class OnRecords:
    """Base of what is simulated on records in memory: their columns, and what these mean."""

    _records: SimulatedRecords

    def __len__(self) -> int:
        """Return the number of clients."""
        return len(self._records)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self._records.names

    def variables(self) -> Mapping[str, Variable]:
        """Return what is known of the columns, by name: those agreed, or made from the records."""
        return self._records.variables

    def require_variables(self, names: Iterable[str]) -> None:
        """Check that columns are what variables can be.

        Raises:
            ValueError: one is not; the message says what it is instead.
        """
        self._records.require_variables(names)

    def with_variables(self, given: Mapping[str, Variable], *, counts_others: bool = False) -> Self:
        """Return the same with other levels and bounds; those that were agreed stay.

        A value that is none of a variable's levels then is missing, or, if somebody
        `counts_others`, of a further level. Both draw from one seed.

        Raises:
            ValueError: a level given is none of the records', and one of these is not given.
        """
        part = copy(self)
        part._records = self._records.with_variables(given, counts_others=counts_others)
        return part
