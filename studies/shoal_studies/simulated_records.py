"""Reads a simulation's records from columns by name: a mapping, or a data frame."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.trust.dictionary import Category, Coding, Date, event_fault_of
from shoal_studies.catalogue.study import bounds_read
from shoal_studies.coding import Variable, coded, near_to
from shoal_studies.posteriors.base import array_of, columns_of, require_plain

# Tells whoever owns the records which of their values lie beyond the bounds of a task.
#
# A job cuts such values to the bounds in silence, for nobody may look. Only a simulation is told.

_SHARES: Final = (0.01, 0.05)  # of values beyond bounds, that are told, and that are doubted
_TIMES: Final = (0.5, 1.0)  # the same two of times: those beyond the last one are censored there
_MOST_CODES: Final = 3


@dataclass(frozen=True)
class SimulatedRecords:
    """Columns by name, shape (records, columns), as numbers that records hold; NaN where missing.

    `given` are the columns as they were handed over, by which levels can be read anew. `variables`
    say what the numbers of a column mean, as far as somebody said so. Columns in `unreadable` hold
    no numbers, for the reason there. `is_agreed` is whether the variables were given with the
    columns, as a data dictionary.
    """

    names: tuple[str, ...]
    values: NDArray[np.float64]
    given: Mapping[str, NDArray[Any]]
    variables: Mapping[str, Variable]
    unreadable: Mapping[str, str]
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

        Raises:
            ValueError: a number is not finite, columns are no vectors of one length, have no names,
                a name twice, or are Series with different indexes.
        """
        columns = columns_of(records)
        if columns is None:
            raise ValueError(
                "records have columns by name: a data frame, or a mapping such as "
                '{"age": array[:, 0], "sex": array[:, 1]}'
            )
        arrays = {name: np.array(array_of(values)) for name, values in columns.items()}
        for name, column in arrays.items():
            if column.ndim != 1:
                raise ValueError(
                    f"column {name!r} has the shape {column.shape}, and a column is a vector: hand "
                    "over each of its columns by itself, as x[:, 0]"
                )
        if len({len(each) for each in arrays.values()}) != 1:
            raise ValueError("records must have columns of one length")
        [rows] = {len(each) for each in arrays.values()}
        agreed = () if variables is None else tuple(variables)
        known = {each.name: each for each in agreed}
        given: dict[str, NDArray[Any]] = {}
        unreadable: dict[str, str] = {}
        for name, values in columns.items():
            try:
                require_plain(values)
                given[name] = arrays[name]
            except ValueError as error:
                unreadable[name] = str(error)
        nothing = np.full((rows, len(columns)), np.nan)
        whole = cls(tuple(columns), nothing, given, {}, unreadable)._read(given, known)
        for place, name in enumerate(columns):
            is_text = isinstance(known.get(name), Category)
            if np.isinf(whole.values[:, place]).any() or (
                not (missing or is_text or name in whole.unreadable)
                and np.isnan(whole.values[:, place]).any()
            ):
                raise ValueError(f"column {name!r}: every value must be a finite number")
        return replace(whole, is_agreed=variables is not None)

    def _read(self, names: Iterable[str], variables: Mapping[str, Variable]) -> Self:
        """Return the same with columns `names` read by `variables`, which are known from now on."""
        values, unreadable = self.values.copy(), dict(self.unreadable)
        for name in names:
            unreadable.pop(name, None)
            try:
                values[:, self.names.index(name)] = coded(self.given[name], variables.get(name))
            except ValueError as error:
                unreadable[name] = str(error)
        known = {**self.variables, **variables}
        found = replace(self, values=values, variables=known, unreadable=unreadable)
        for variable in variables.values():
            found = found._with_indicator(variable)
        return found

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.values)

    def select(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return a copy of these columns, shape (records, len(names)).

        Raises:
            ValueError: one is missing, or holds neither numbers nor levels.
        """
        for name in names:
            if name not in self.names:
                near = near_to(name, self.names)
                raise ValueError(f"the records have no column {name!r}{near}")
            if name in self.unreadable:
                raise ValueError(f"column {name!r} {self.unreadable[name]}")
        return self.values[:, [self.names.index(name) for name in names]]

    def with_variables(self, given: Mapping[str, Variable]) -> Self:
        """Return the same records by other levels and bounds; those that were agreed stay."""
        if self.is_agreed:
            return self
        return self._read([name for name in given if name in self.given], given)

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

    def beyond(
        self, columns: Iterable[ColumnBounds], codings: Iterable[Coding]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return which variables have over one value in a hundred beyond the bounds of `columns`.

        In sentences: all of them, and those that speak against intervals.

        Texts, and outcomes and levels that have `codings`, are no quantities. A twentieth of the
        values beyond makes intervals doubtful. Times beyond the last one are censored there, as
        those of who is followed up to the end of a study are: half of them are told, and all of
        them doubted.

        Raises:
            ValueError: the bounds are 0 and 1, and the variable has up to three codes, others than
                0 and 1; or a column holds no numbers.
        """
        kinds = {each.variable: each.kind for each in codings}
        found: list[tuple[bool, str]] = []
        for name, lower, upper, is_level in dict.fromkeys(bounds_read(columns)):
            kind = kinds.get(name)
            is_text = isinstance(self.variables.get(name), Category)
            if (
                is_level
                or is_text
                or name not in self.names
                or kind in ("event", "levels", "classes")
            ):
                continue
            [values] = self.select([name]).T
            values = values[~np.isnan(values)]
            count = int(np.sum((values < lower) | (values > upper)))
            if not count:
                continue
            share, codes = count / len(values), np.unique(values)
            said = (
                f"{count:,} of {len(values):,} values of {name} ({share:.0%}) lie beyond the "
                f"bounds ({lower:g}, {upper:g})"
            )
            if (
                (lower, upper) == (0.0, 1.0)
                and len(codes) <= _MOST_CODES
                and bool((codes == np.floor(codes)).all())
            ):
                *first, last = [f"{each:g}" for each in codes.tolist()]
                shown = f"{', '.join(first)} and {last}" if first else last
                raise ValueError(
                    f"{said}: is it coded {shown}? Give bounds that hold its codes, name a level, "
                    f"as level({name}, {codes[:2][-1]:g}) does, or leave out codes of what is "
                    "missing"
                )
            told, doubtful = _TIMES if kind == "time" else _SHARES
            if share <= told:
                continue
            if len(np.unique(np.clip(values, lower, upper))) == 1:
                said += ", so that it never varies within them: is the unit right?"
            else:
                said += f", and are {'censored there' if kind == 'time' else 'cut to them'}"
            found.append((share >= doubtful, said))
        found.sort(key=lambda each: not each[0])
        return tuple(said for _, said in found), tuple(said for doubted, said in found if doubted)

    def require_codings(self, codings: Iterable[Coding]) -> None:
        """Check that outcomes, times, counts, weights and levels are coded as a task has it.

        Raises:
            ValueError: one is not; the message says what was found.
        """
        for coding in codings:
            variable = self.variables.get(coding.variable)
            is_text = isinstance(variable, Category)
            fault = None
            if isinstance(variable, Date) and coding.kind != "levels":
                fault = (
                    f"{coding.variable!r} holds days, and numbers are due: of a time those since a "
                    "record is first at risk"
                )
            elif coding.kind == "event" and not coding.values:
                fault = event_fault_of(variable)
            elif isinstance(variable, Category) and coding.kind not in ("event", "levels"):
                fault = (
                    f"{coding.variable!r} has the levels {', '.join(variable.levels)}, and numbers "
                    "are due: "
                )
                fault += (
                    "write them as 1 and 0"
                    if coding.kind == "outcome"
                    else f'name a level, as level({coding.variable}, "...") does'
                )
            if fault is None and not is_text and coding.variable in self.names:
                fault = coding.fault_of(self.select([coding.variable])[:, 0])
            if fault is not None:
                raise ValueError(fault)
