"""Reads a simulation's records from columns by name: a mapping, or a data frame."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal_learning.coding import Variable, coded, variable_of
from shoal_protocol.trust.dictionary import Category


@dataclass(frozen=True)
class SimulatedRecords:
    """Columns by name, shape (records, columns), as numbers that records hold; NaN where missing.

    `variables` say what the numbers of a column mean, as far as is known. Columns in `unusable`
    hold neither numbers nor levels: nobody may read them. `is_agreed` is whether the variables were
    given, and not made from the columns.
    """

    names: tuple[str, ...]
    values: NDArray[np.float64]
    variables: Mapping[str, Variable]
    unusable: frozenset[str] = frozenset()
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
            ValueError: a number is not finite, or columns are no vectors of one length.
        """
        keys = list(records.keys() if isinstance(records, Mapping) else records.columns)
        if variables is None:
            made = (variable_of(str(key), records[key]) for key in keys)
            known = {each.name: each for each in made if each is not None}
        else:
            known = {each.name: each for each in variables}
        columns, unusable = [], set()
        for key in keys:
            try:
                columns.append(coded(records[key], known.get(str(key))))
            except (TypeError, ValueError):
                columns.append(np.full(np.shape(records[key]), np.nan))
                unusable.add(str(key))
        try:
            values = np.column_stack(columns)
        except ValueError:
            values = np.empty(0)
        if values.shape != (len(values), len(keys)) or any(each.ndim != 1 for each in columns):
            raise ValueError("records must have columns of one length")
        names = tuple(map(str, keys))
        text = [name in unusable or isinstance(known.get(name), Category) for name in names]
        if not np.all(np.isfinite(values) | np.isnan(values) & (missing | np.array(text))):
            raise ValueError("every value must be a finite number")
        found = cls(names, values, known, frozenset(unusable), variables is not None)
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
        if missing := [name for name in names if name not in self.names]:
            raise ValueError(f"the records have no column {', '.join(map(repr, missing))}")
        if texts := [name for name in names if name in self.unusable]:
            raise ValueError(
                f"column {', '.join(map(repr, texts))} holds neither numbers nor a few levels"
            )
        return self.values[:, [self.names.index(name) for name in names]]

    def with_variables(self, given: Mapping[str, Variable]) -> Self:
        """Return the same records by other levels and bounds; those that were agreed stay.

        A value that is none of the levels given is missing.
        """
        if self.is_agreed:
            return self
        values = self.values.copy()
        for name, variable in given.items():
            own = self.variables.get(name)
            if isinstance(own, Category) and isinstance(variable, Category):
                places = coded(np.array(own.levels, object), variable)
                column = self.names.index(name)
                is_there = ~np.isnan(values[:, column])
                values[is_there, column] = places[values[is_there, column].astype(np.intp)]
        return replace(self, values=values, variables={**self.variables, **given})

    def _with_indicator(self, variable: Variable) -> Self:
        """Return records with a variable's indicator, and gaps filled, as a holder loads them."""
        if variable.indicator is None or variable.name not in self.names:
            return self
        values = self.values.copy()
        column = self.names.index(variable.name)
        gaps = np.isnan(values[:, column])
        values[gaps, column] = variable.in_place_of_missing
        return replace(
            self,
            names=(*self.names, variable.indicator.name),
            values=np.column_stack([values, gaps]),
            variables={**self.variables, variable.indicator.name: variable.indicator},
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

    def with_variables(self, given: Mapping[str, Variable]) -> Self:
        """Return the same with other levels and bounds; those that were agreed stay.

        A value that is none of a variable's levels then is missing. Both draw from one seed.
        """
        part = copy(self)
        part._records = self._records.with_variables(given)
        return part
