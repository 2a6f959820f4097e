"""Estimators that predict a number or one class of two from features, learned in rounds."""

from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from shoal.estimators.base import Estimator
from shoal.estimators.columns import matrix_of, vector_of
from shoal.estimators.parameters import OfLevels
from shoal.estimators.predicting import DEVIANCES, ReadsRows, explained
from shoal.formulas import Known, Part, features_of, levels_of
from shoal_protocol.queries.columns import ColumnBounds, Level, variables_of
from shoal_protocol.queries.design import Floats
from shoal_protocol.trust.dictionary import Category
from shoal_studies.catalogue.linear_regression import (
    LinearRegressionPosterior,
    LinearRegressionTask,
)
from shoal_studies.catalogue.multinomial_regression import (
    MultinomialRegressionPosterior,
    MultinomialRegressionTask,
    TargetLevel,
)
from shoal_studies.catalogue.piecewise_exponential import PiecewiseExponentialPosterior
from shoal_studies.catalogue.regression import (
    MeasuredCoefficients,
    MeasuredRegressionPosterior,
    RegressionTask,
    TargetFamily,
)
from shoal_studies.posteriors.base import LEVEL
from shoal_studies.posteriors.summaries import Summary, quantile_headings

RegressionT = TypeVar(
    "RegressionT",
    bound=LinearRegressionPosterior | MeasuredRegressionPosterior,
)


JudgedT = TypeVar("JudgedT", bound=MeasuredCoefficients | PiecewiseExponentialPosterior)


class Regression(ReadsRows, Estimator[RegressionT]):
    """Base of all regressions: `features` and `target` are columns with their public bounds.

    In their place a `formula` may stand: see `shoal.formulas`.
    """

    _kind = "regressor"
    family: ClassVar[TargetFamily]

    @property
    def coef_(self) -> Floats:
        """Posterior means of the slopes, shape (m,), in the units of the data.

        `posterior_` has their whole distribution.
        """
        coefficients = self._coefficients
        return np.array([coefficients[each.name] for each in self._task.features])

    @property
    def intercept_(self) -> float:
        """Posterior mean of the intercept, 0 without one."""
        return self._coefficients.get("intercept", 0.0)

    @property
    def _coefficients(self) -> dict[str, float]:
        posterior = self.posterior_
        return dict(zip(posterior.names, posterior.mean.tolist(), strict=True))

    def _means(self, rows: object) -> Floats:
        """Return the target's mean, shape (n,); of two classes, the upper one's probability."""
        return self.posterior_.predict(self._table(rows))[0]

    def score(self, rows: object, targets: object = None) -> float:
        """Return how well `targets`, shape (n,), are predicted: at most 1.

        None takes the targets from the rows' column of that name.

        Raises:
            NotFittedError, ValueError: as `predict`.
        """
        return explained(DEVIANCES[self.family], *self._both(rows, targets))

    def _both(self, rows: Any, targets: object) -> tuple[Floats, Floats]:
        """Return targets, those given or those in the rows, and their expected values."""
        observed, expected = self._observed(rows, targets), self._means(rows)
        if expected.shape != observed.shape:
            raise ValueError("targets must have one number for each row")
        return observed, expected

    def _observed(self, rows: Any, targets: object) -> Floats:
        """Return targets, shape (n,), on the scale of the predictions; texts are levels."""
        self._require_one_index(rows, targets)
        [name] = variables_of((self._task.target,))
        if targets is None or isinstance(self._variables.get(name), Category):
            named = rows if targets is None else {name: targets}
            targets = self._design(named, (self._task.target,))
        return vector_of(targets, "targets")

    def _decided(self, means: Floats) -> NDArray[Any]:
        """Return what `predict` says where these means are expected."""
        return means

    def predict(self, rows: object, return_std: bool = False) -> Any:
        """Return the expected target of each row, shape (n,), and its standard deviation if asked.

        Of a logistic regression, the more probable of its `classes_`; the standard deviation is the
        posterior's of the upper class's probability.

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: a column is missing, or the rows cannot be used.
        """
        mean, sd = self.posterior_.predict(self._table(rows))
        return (self._decided(mean), sd) if return_std else self._decided(mean)

    def predict_interval(self, rows: object, level: float = LEVEL) -> Floats:
        """Return intervals that hold `level`, shape (n, 2), within what is predicted can be.

        Of a linear regression they are a new record's target's, of a logistic one the probability's
        of the upper class, of others the mean's.

        Raises:
            NotFittedError, ValueError: as `predict`; or `level` is not between 0 and 1.
        """
        return self.posterior_.predict_interval(self._table(rows), level)


class Judged(Estimator[JudgedT]):
    """What has a posterior with a verdict."""

    @property
    def verdict_(self) -> str:
        """What to make of the intervals: "trustworthy", "doubtful" or "prior", and why."""
        return str(self.posterior_.verdict)

    def ratios(self, level: float = LEVEL) -> Summary:
        """Return odds, rate or hazard ratios for one unit of each feature, with intervals.

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: it is a linear regression, or `level` is not strictly between 0 and 1.
        """
        found = self.posterior_.ratios(level)
        names = [self.posterior_.names[place] for place in self.posterior_.slopes]
        rows = tuple(
            (name, *(f"{each:.4g}" for each in row))
            for name, row in zip(names, found.tolist(), strict=True)
        )
        headings = ("", self.posterior_.ratio, *quantile_headings(level))
        return Summary(self.posterior_.title, headings, rows, (("Verdict", self.verdict_),))


class MeasuredRegression(
    Judged[MeasuredRegressionPosterior], Regression[MeasuredRegressionPosterior]
):
    """A regression whose first round measures the columns. Parameters: see `RegressionTask`.

    Bounds that are too wide or lopsided cost precision, and change nothing else. `verdict_` says
    whether the intervals may be believed, and why they may not.

    `weights` is a column with bounds from 0, `offset` one whose coefficient is 1. Both may be parts
    of a formula: offset="log(years)". `predict` needs the offset's column, too.
    """

    _fixed = frozenset({"name", "family", "purpose"})

    _rows = "predictors"


class LinearRegression(MeasuredRegression):
    """Bayesian linear regression in five rounds; `score` is R^2.

    LinearRegression(features={"age": (18, 90)}, target={"pressure": (80, 180)})

    With `purpose` "prediction" predictions err less where noise is strong, and intervals may fail;
    that takes four rounds.
    """

    family = "normal"
    _fixed = frozenset({"name", "family", "offset"})
    task_type = RegressionTask


class PoissonRegression(MeasuredRegression):
    """Bayesian Poisson regression of counts in five rounds; `score` is D^2.

    D^2 is the share of deviance explained. Intervals hold where counts scatter more, too.
    """

    family = "poisson"
    _from_zero = True
    task_type = RegressionTask


class NegativeBinomialRegression(MeasuredRegression):
    """Bayesian regression of counts that scatter widely, in five rounds; `score` is D^2.

    Means are as in a Poisson regression, and D^2 is Poisson's. Records with large means weigh less.
    """

    family = "negative_binomial"
    _from_zero = True
    task_type = RegressionTask


class GammaRegression(MeasuredRegression):
    """Bayesian gamma regression of positive numbers in five rounds; `score` is D^2.

    A mean's logarithm is linear, as of costs or lengths of stay, and numbers scatter in proportion.
    D^2 is the share of the gamma deviance that is explained.
    """

    family = "gamma"
    task_type = RegressionTask


class LogisticRegression(MeasuredRegression):
    """Bayesian logistic regression in five rounds; `score` is the accuracy.

    A target is of the class that is its bounds' upper end or of the lower one: `classes_`. Of a
    text the upper one is the level that is learned.
    Probabilities are averaged over the posterior.
    """

    _kind = "classifier"
    family = "logistic"
    task_type = RegressionTask

    @property
    def classes_(self) -> NDArray[Any]:
        """The two classes, shape (2,): levels, or the target's lower bound and its upper one."""
        return np.array(self._levels or (self._task.target.lower, self._task.target.upper))

    @property
    def _levels(self) -> tuple[str, str] | None:
        """Return what the classes of a text are called, the one that is learned second."""
        target: ColumnBounds = self._task.target
        factors = () if target.term is None else target.term.factors
        variable = self._variables.get(factors[0].variable) if len(factors) == 1 else None
        if not isinstance(variable, Category) or not isinstance(factors[0], Level):
            return None
        of = variable.levels[int(factors[0].value)]
        others = [level for level in variable.levels if level != of]
        return others[0] if len(others) == 1 else f"not {of}", of

    def predict_proba(self, rows: object) -> Floats:
        """Return the probability of each class, shape (n, 2).

        Raises:
            NotFittedError, ValueError: as `predict`.
        """
        upper = self._means(rows)
        return np.column_stack([1.0 - upper, upper])

    def _decided(self, means: Floats) -> NDArray[Any]:
        return np.asarray(self.classes_[(means > 0.5).astype(np.intp)])

    def score(self, rows: object, targets: object = None) -> float:
        """Return the share of `targets`, shape (n,), or of the rows', that are predicted.

        Raises:
            NotFittedError, ValueError: as `predict`.
        """
        observed, expected = self._both(rows, targets)
        return float(np.mean((expected > 0.5) == (observed == 1.0)))

    def _observed(self, rows: Any, targets: object) -> Floats:
        observed = super()._observed(rows, targets)
        if not np.isin(observed, [self._task.target.lower, self._task.target.upper]).all():
            raise ValueError("targets must be the target's lower or upper bound: see classes_")
        return np.where(observed == self._task.target.upper, 1.0, 0.0)


class LinearRegressionInBounds(Regression[LinearRegressionPosterior]):
    """Bayesian linear regression in units of the bounds; `score` is R^2.

    Parameters: see `LinearRegressionTask`.

    LinearRegressionInBounds(
        features={"age": (18, 90)}, target={"pressure": (80, 180)}, method="plain"
    )
    """

    task_type = LinearRegressionTask
    family = "normal"
    _centres_target = True


class MultinomialRegression(OfLevels, ReadsRows, Judged[MultinomialRegressionPosterior]):
    """Bayesian multinomial logistic regression in five rounds; `score` is the accuracy.

    MultinomialRegression(features={"age": (18, 90)}, target={"stage": ("early", "middle", "late")})

    The first level is the reference. With a formula, "stage ~ age" or "C(stage, reference='late') ~
    age", levels are those of `variables` or of the federation's data dictionary; so they are of a
    `target` that is a name. Levels may be numbers, target={"stage": (1, 2, 3)}, also in a formula:
    "C(stage, levels=[1, 2, 3]) ~ age". Other parameters: see `MultinomialRegressionTask`.
    Probabilities are averaged over the posterior.
    """

    task_type = MultinomialRegressionTask
    _leveled = "target"
    _counts_others = False
    _fixed = frozenset({"name", "levels"})
    _kind = "classifier"

    def _designed(self, given: dict[str, Any], known: Known) -> dict[str, Any]:
        formula = self._formula_in(given)
        if formula is None:
            [(name, levels)] = self._levels().items()
            part = Part(name, "C", name, {} if levels is None else {"levels": tuple(levels)})
        else:
            given["features"], part = features_of(formula, known), formula.target
        given["target"], given["levels"] = (
            part.variable,
            tuple(TargetLevel(name=name, value=value) for name, value in levels_of(part, known)),
        )
        return given

    @property
    def classes_(self) -> NDArray[np.str_]:
        """Names of the levels, shape (K,), the reference first."""
        return np.array(self.posterior_.levels)

    @property
    def coef_(self) -> Floats:
        """Posterior means of the slopes, shape (K - 1, m): of each level over the reference."""
        return self._coefficients[:, 1:]

    @property
    def intercept_(self) -> Floats:
        """Posterior means of the intercepts, shape (K - 1,)."""
        return self._coefficients[:, 0]

    @property
    def _coefficients(self) -> Floats:
        return self.posterior_.mean.reshape(len(self.posterior_.levels) - 1, -1)

    def predict_proba(self, rows: object) -> Floats:
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
        return np.asarray(self.classes_[self.predict_proba(rows).argmax(axis=1)])

    def predict_interval(self, rows: object, level: float = LEVEL) -> Floats:
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
        self._require_one_index(rows, targets)
        named = rows if targets is None else {self._task.target: targets}
        values = matrix_of(named, [self._task.target], self._variables)
        is_of = values == np.array([each.value for each in self._task.levels])
        if not is_of.any(axis=1).all():
            raise ValueError(f"a target is none of the levels {', '.join(self.classes_)}")
        return np.asarray(is_of.argmax(axis=1))
