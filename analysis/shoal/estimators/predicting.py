"""Shared base of the estimators that predict a target from features."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from shoal.estimators.columns import matrix_of
from shoal.estimators.parameters import Parameters
from shoal_protocol.queries.columns import ColumnBounds, design_of, in_levels, variables_of
from shoal_protocol.queries.design import Floats
from shoal_studies.posteriors.base import require_one_index


def explained(
    deviance: Callable[[Floats, Floats], float],
    observed: Floats,
    expected: Floats,
) -> float:
    """Return the share of the targets' deviance that predictions explain, shapes (n,).

    It is R^2 of squares, and D^2 of other deviances. Of targets that are all the same it is 1 if
    nothing is left, else 0.

    Raises:
        ValueError: the targets are none that the deviance is for.
    """
    rest = deviance(observed, expected)
    whole = deviance(observed, np.full_like(observed, observed.mean()))
    return float(rest == 0.0) if whole == 0.0 else 1.0 - rest / whole


def squares(observed: Floats, expected: Floats) -> float:
    """Return the sum of squared differences."""
    return float(np.sum((observed - expected) ** 2))


def poisson_deviance(counts: Floats, expected: Floats) -> float:
    """Return twice the sum of y log(y / mu) - y + mu (McCullagh and Nelder 1989, section 2.3).

    Raises:
        ValueError: a count is negative.
    """
    if (counts < 0.0).any():
        raise ValueError("counts must not be negative")
    positive = counts > 0.0
    logs = counts[positive] * np.log(counts[positive] / expected[positive])
    return float(2.0 * (logs.sum() - np.sum(counts - expected)))


def gamma_deviance(numbers: Floats, expected: Floats) -> float:
    """Return twice the sum of y / mu - 1 - log(y / mu) (McCullagh and Nelder 1989, section 2.3).

    Raises:
        ValueError: a number is not positive.
    """
    if (numbers <= 0.0).any():
        raise ValueError("numbers must be positive")
    return float(2.0 * np.sum(numbers / expected - 1.0 - np.log(numbers) + np.log(expected)))


DEVIANCES: Final = {
    "normal": squares,
    "poisson": poisson_deviance,
    "negative_binomial": poisson_deviance,
    "gamma": gamma_deviance,
}


class ReadsRows(Parameters):
    """Rows are arrays with one column for each variable, in order, or have columns by name.

    Variables are the features, or what the terms of a formula read; texts are levels.
    """

    _rows = "features"

    def _table(self, rows: object) -> Floats:
        return self._design(rows, self._inputs)

    def _design(self, rows: object, columns: tuple[ColumnBounds, ...]) -> Floats:
        """Return columns, shape (n, len(columns)), of rows that have their variables."""
        table = matrix_of(rows, variables_of(columns), self._variables)
        if not in_levels(columns, table).all():
            raise ValueError("a value is none of the levels that the formula lists")
        return design_of(columns, table)

    @staticmethod
    def _require_one_index(rows: Any, targets: object) -> None:
        """Check that rows and targets are of the same records, as far as pandas' indexes tell.

        Raises:
            ValueError: their indexes differ.
        """
        columns = rows if isinstance(rows, Mapping) else {"rows": rows}
        require_one_index({**columns, "targets": targets})
