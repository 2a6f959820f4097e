"""The estimator that predicts one class of several from features, learned in five rounds."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shoal.estimators.columns import FloatMatrix, FloatVector, matrix_of
from shoal.estimators.predicting import ReadsRows
from shoal.estimators.regressions import Judged
from shoal.formulas.designing import features_of, levels_of
from shoal.formulas.parsing import Part
from shoal.formulas.variables import Known
from shoal_learning.coding import are_numbers_of, is_levels
from shoal_protocol.posteriors import plots
from shoal_protocol.posteriors.base import LEVEL
from shoal_protocol.posteriors.intervals import require_level
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.studies.multinomial_regression import (
    MultinomialRegressionPosterior,
    MultinomialRegressionTask,
    TargetLevel,
)
from shoal_protocol.wire.texts import canonical_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class MultinomialRegression(ReadsRows, Judged[MultinomialRegressionPosterior]):
    """Bayesian multinomial logistic regression in five rounds; `score` is the accuracy.

    MultinomialRegression(features={"age": (18, 90)}, target={"stage": ("early", "middle", "late")})

    The first level is the reference; levels that are numbers are given as target="stage",
    levels=(1, 2, 3). With a formula, "stage ~ age" or "C(stage, reference='late') ~ age", levels
    are those of `variables` or of the federation's data dictionary; so they are of a `target` that
    is a name. Other parameters: see `MultinomialRegressionTask`. Probabilities are averaged over
    the posterior.
    """

    task_type = MultinomialRegressionTask
    _estimator_type: ClassVar[str] = "classifier"
    levels = None

    def _designed(self, given: dict[str, Any], known: Known) -> dict[str, Any]:
        formula, target = self._formula_in(given), given["target"]
        if formula is not None:
            given["features"], part = features_of(formula, known), formula.target
        else:
            [name] = target if isinstance(target, Mapping) else [target]
            part = Part(name, "category", name)
        given["target"], levels = part.variable, given["levels"]
        if are_numbers_of(levels):
            given["levels"] = tuple(
                TargetLevel(name=f"{each:.15g}", value=float(each)) for each in levels
            )
        elif levels is None or is_levels(levels):
            given["levels"] = tuple(
                TargetLevel(name=name, value=value) for name, value in levels_of(part, known)
            )
        return given

    def _known(self) -> Known:
        target, levels = self.target, self.levels
        if self.formula is None and target is not None:
            names = list(target) if isinstance(target, Mapping) else [target]
            are_levels = not isinstance(target, Mapping) or all(map(is_levels, target.values()))
            if len(names) != 1 or not isinstance(names[0], str) or not are_levels:
                raise ValueError(
                    'target must be one variable with its levels, {"x": ("a", "b")}; of levels '
                    'that are numbers give target="x", levels=(1, 2, 3), or a formula, '
                    "C(x, levels=[1, 2, 3]) ~ z"
                )
        known = super()._known()
        if isinstance(target, str) and is_levels(levels):
            return known.and_one(canonical_text(target), levels, "levels")
        return known

    def _lacking(self) -> set[str]:
        named = {self.target} if isinstance(self.target, str) and self.levels is None else set()
        return super()._lacking() | (named - self._known().variables.keys())

    def _inputs(self, task: Any) -> tuple[ColumnBounds, ...]:
        self._features = task.features
        self._target_name: str = task.target
        self._levels: tuple[TargetLevel, ...] = task.levels
        return self._features

    @property
    def classes_(self) -> NDArray[np.str_]:
        """Names of the levels, shape (K,), the reference first."""
        self._require_fit()
        return np.array(self.posterior_.levels)

    @property
    def coef_(self) -> FloatMatrix:
        """Posterior means of the slopes, shape (K - 1, m): of each level over the reference."""
        return self._coefficients[:, 1:]

    @property
    def intercept_(self) -> FloatVector:
        """Posterior means of the intercepts, shape (K - 1,)."""
        return self._coefficients[:, 0]

    @property
    def _coefficients(self) -> FloatMatrix:
        self._require_fit()
        return self.posterior_.mean.reshape(len(self.posterior_.levels) - 1, -1)

    def predict_proba(self, rows: object) -> FloatMatrix:
        """Return the probability of each level, shape (n, K), in the order of `classes_`.

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: a column is missing, or the rows cannot be used.
        """
        return self.posterior_.predict(self._table(rows))[0]

    def predict(self, rows: object) -> NDArray[np.str_]:
        """Return the most probable level of each row, shape (n,).

        Raises:
            NotFittedError, ValueError: as `predict_proba`.
        """
        chosen: NDArray[np.str_] = self.classes_[self.predict_proba(rows).argmax(axis=1)]
        return chosen

    def predict_interval(self, rows: object, level: float = LEVEL) -> FloatMatrix:
        """Return intervals that hold `level` of each level's probability, shape (n, K, 2).

        Raises:
            NotFittedError, ValueError: as `predict_proba`; or `level` is not between 0 and 1.
        """
        return self.posterior_.predict_interval(self._table(rows), level)

    def score(self, rows: object, targets: object = None) -> float:
        """Return the share of `targets`, shape (n,), that are predicted.

        They are names of levels, or numbers where levels are; None takes the rows' column.

        Raises:
            NotFittedError, ValueError: as `predict_proba`; or a target is no level.
        """
        expected = self.predict_proba(rows).argmax(axis=1)
        return float(np.mean(expected == self._places(rows, targets)))

    def _places(self, rows: Any, targets: Any) -> NDArray[np.intp]:
        """Return where in `classes_` targets are, shape (n,)."""
        self._require_fit()
        self._require_one_index(rows, targets)
        named = rows if targets is None else {self._target_name: targets}
        values = matrix_of(named, [self._target_name], self._variables)
        is_of = values == np.array([each.value for each in self._levels])
        if not is_of.any(axis=1).all():
            raise ValueError(f"a target is none of the levels {', '.join(self.classes_)}")
        places: NDArray[np.intp] = is_of.argmax(axis=1)
        return places

    def plot_predictions(
        self,
        rows: object,
        targets: object = None,
        axes: "Axes | None" = None,
        *,
        of: str,
        level: float = LEVEL,
    ) -> "Axes":
        """Draw the probabilities of the level `of` with their intervals; return the axes.

        `targets` that are given are drawn as 1 where they are of that level, and 0 elsewhere.

        Raises:
            NotFittedError, ValueError: as `predict_proba`; or there is no such level.
            ImportError: matplotlib is not installed.
        """
        place = self._place_of(of)
        happened = None if targets is None else self._places(rows, targets) == place
        return plots.predictions(
            self.predict_proba(rows)[:, place],
            self.predict_interval(rows, level)[:, place],
            None if happened is None else happened.astype(np.float64),
            axes,
            level=level,
            target=self._probability_of(of),
            caption=self.posterior_.caption_below(self._caption),
        )

    def plot_calibration(
        self,
        rows: object,
        targets: object = None,
        axes: "Axes | None" = None,
        *,
        of: str,
        level: float = LEVEL,
    ) -> "Axes":
        """Draw how often records are of the level `of` beside what was predicted of them.

        Raises:
            NotFittedError, ValueError: as `plot_predictions`, and as `score`.
            ImportError: matplotlib is not installed.
        """
        require_level(level)
        place = self._place_of(of)
        happened = (self._places(rows, targets) == place).astype(np.float64)
        return plots.calibration(
            self.predict_proba(rows)[:, place],
            happened,
            axes,
            level=level,
            target=self._probability_of(of),
            caption=None,
        )

    def _place_of(self, level: str) -> int:
        self._require_fit()
        names = self.posterior_.levels
        if level not in names:
            raise ValueError(f"{level!r} is none of the levels {', '.join(names)}")
        return names.index(level)

    def _probability_of(self, level: str) -> str:
        return f"probability that {self._target_name} is {level}"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=False),
            classifier_tags=ClassifierTags(multi_class=True),
        )
