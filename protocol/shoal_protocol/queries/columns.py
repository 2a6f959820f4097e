"""Columns that queries are about: of a client's records, or worked out from them by a term."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.terms import ColumnName as ColumnName
from shoal_protocol.queries.terms import Level, Term
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.numbers import Positive, Real


class Column(Model):
    """A column, and the affine map of its public range to [-1, 1].

    It is what `term` makes of a record's variables; without one, the variable that has its name.
    """

    name: ColumnName
    centre: Real
    scale: Positive
    term: Term | None = None


class NamedTerm(Protocol):
    """What reads variables: `Column`, or `ColumnBounds`."""

    @property
    def name(self) -> str: ...
    @property
    def term(self) -> Term | None: ...


def variables_of(columns: Iterable[NamedTerm]) -> tuple[str, ...]:
    """Return the names of the variables that columns read, each once, in order of appearance."""
    read = ((each.name,) if each.term is None else each.term.variables for each in columns)
    return tuple(dict.fromkeys(name for names in read for name in names))


def factors_in(columns: Iterable[NamedTerm]) -> int:
    """Return how many factors the columns' terms have."""
    return sum(len(each.term.factors) for each in columns if each.term is not None)


def design_of(columns: Sequence[NamedTerm], records: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the columns, shape (r, len(columns)), of finite records, shape (r, variables)."""
    if all(each.term is None for each in columns):
        return records
    values = dict(zip(variables_of(columns), records.T, strict=True))
    return np.column_stack(
        [values[each.name] if each.term is None else each.term.of(values) for each in columns]
    )


def in_levels(columns: Sequence[NamedTerm], records: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell which of finite records, shape (r, variables), have levels among those listed, (r,).

    Others lack a value, and count as none.
    """
    whole = np.ones(len(records), np.bool_)
    if all(each.term is None for each in columns):
        return whole
    values = dict(zip(variables_of(columns), np.asarray(records, np.float64).T, strict=True))
    for each in columns:
        for factor in () if each.term is None else each.term.factors:
            if isinstance(factor, Level) and factor.among:
                whole &= np.isin(values[factor.variable], factor.among)
    return whole
