"""Shared base of the estimators that predict a target from features."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from shoal.estimators.columns import FloatMatrix, FloatVector, matrix_of, vector_of
from shoal.estimators.parameters import Parameters
from shoal_protocol.queries.columns import ColumnBounds, Level, design_of, in_levels, variables_of
from shoal_protocol.queries.models import Family
from shoal_protocol.trust.dictionary import Category
from shoal_studies.catalogue.regression import TargetFamily
from shoal_studies.posteriors.base import require_one_index


def explained(
    deviance: Callable[[FloatVector, FloatVector], float],
    observed: FloatVector,
    expected: FloatVector,
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


def squares(observed: FloatVector, expected: FloatVector) -> float:
    """Return the sum of squared differences."""
    return float(np.sum((observed - expected) ** 2))


def poisson_deviance(counts: FloatVector, expected: FloatVector) -> float:
    """Return twice the sum of y log(y / mu) - y + mu (McCullagh and Nelder 1989, section 2.3).

    Raises:
        ValueError: a count is negative.
    """
    if (counts < 0.0).any():
        raise ValueError("counts must not be negative")
    positive = counts > 0.0
    logs = counts[positive] * np.log(counts[positive] / expected[positive])
    return float(2.0 * (logs.sum() - np.sum(counts - expected)))


def gamma_deviance(numbers: FloatVector, expected: FloatVector) -> float:
    """Return twice the sum of y / mu - 1 - log(y / mu) (McCullagh and Nelder 1989, section 2.3).

    Raises:
        ValueError: a number is not positive.
    """
    if (numbers <= 0.0).any():
        raise ValueError("numbers must be positive")
    return float(2.0 * np.sum(numbers / expected - 1.0 - np.log(numbers) + np.log(expected)))


_DEVIANCES: Final = {
    "normal": squares,
    "linear": squares,
    "poisson": poisson_deviance,
    "negative_binomial": poisson_deviance,
    "gamma": gamma_deviance,
}


class ReadsRows(Parameters):
    """Rows are arrays with one column for each variable, in order, or have columns by name.

    Variables are the features, or what the terms of a formula read; texts are levels.
    """

    _features: tuple[ColumnBounds, ...]

    def _table(self, rows: object) -> FloatMatrix:
        return self._design(rows, self._inputs_of_rows)

    def _design(self, rows: object, columns: tuple[ColumnBounds, ...]) -> FloatMatrix:
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


class Predictor(ReadsRows):
    """What predicts one number: a target, or the probability of one class of two."""

    _kind = "regressor"
    _target: ColumnBounds
    family: ClassVar[Family | TargetFamily]

    @abstractmethod
    def _means(self, rows: object) -> FloatVector:
        """Return the target's mean, shape (n,); of two classes, the upper one's probability."""

    def score(self, rows: object, targets: object = None) -> float:
        """Return how well `targets`, shape (n,), are predicted: at most 1.

        None takes the targets from the rows' column of that name.

        Raises:
            NotFittedError, ValueError: as `predict`.
        """
        return explained(_DEVIANCES[self.family], *self._both(rows, targets))

    def _both(self, rows: Any, targets: object) -> tuple[FloatVector, FloatVector]:
        """Return targets, those given or those in the rows, and their expected values."""
        observed, expected = self._observed(rows, targets), self._means(rows)
        if expected.shape != observed.shape:
            raise ValueError("targets must have one number for each row")
        return observed, expected

    def _observed(self, rows: Any, targets: object) -> FloatVector:
        """Return targets, shape (n,), on the scale of the predictions; texts are levels."""
        self._require_one_index(rows, targets)
        [name] = variables_of((self._target,))
        if targets is None or isinstance(self._variables.get(name), Category):
            named = rows if targets is None else {name: targets}
            targets = self._design(named, (self._target,))
        return vector_of(targets, "targets")

    def _decided(self, means: FloatVector) -> NDArray[Any]:
        """Return what `predict` says where these means are expected."""
        return means


class BinaryClassifier(Predictor):
    """A target is of the class that is its bounds' upper end or of the lower one: `classes_`.

    Of a text the upper one is the level that is learned.
    """

    _kind = "classifier"

    @property
    def classes_(self) -> NDArray[Any]:
        """The two classes, shape (2,): levels, or the target's lower bound and its upper one."""
        return np.array(self._levels or (self._target.lower, self._target.upper))

    @property
    def _levels(self) -> tuple[str, str] | None:
        """Return what the classes of a text are called, the one that is learned second."""
        factors = () if self._target.term is None else self._target.term.factors
        variable = self._variables.get(factors[0].variable) if len(factors) == 1 else None
        if not isinstance(variable, Category) or not isinstance(factors[0], Level):
            return None
        of = variable.levels[int(factors[0].value)]
        others = [level for level in variable.levels if level != of]
        return others[0] if len(others) == 1 else f"not {of}", of

    def predict_proba(self, rows: object) -> FloatMatrix:
        """Return the probability of each class, shape (n, 2).

        Raises:
            NotFittedError, ValueError: as `predict`.
        """
        upper = self._means(rows)
        return np.column_stack([1.0 - upper, upper])

    def _decided(self, means: FloatVector) -> NDArray[Any]:
        return np.asarray(self.classes_[(means > 0.5).astype(np.intp)])

    def score(self, rows: object, targets: object = None) -> float:
        """Return the share of `targets`, shape (n,), or of the rows', that are predicted.

        Raises:
            NotFittedError, ValueError: as `predict`.
        """
        observed, expected = self._both(rows, targets)
        return float(np.mean((expected > 0.5) == (observed == 1.0)))

    def _observed(self, rows: Any, targets: object) -> FloatVector:
        observed = super()._observed(rows, targets)
        if not np.isin(observed, [self._target.lower, self._target.upper]).all():
            raise ValueError("targets must be the target's lower or upper bound: see classes_")
        return np.where(observed == self._target.upper, 1.0, 0.0)
