"""Estimators that predict a number or one class of two from features, learned in rounds."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from shoal.estimators.base import Estimator
from shoal.estimators.columns import FloatMatrix, FloatVector
from shoal.estimators.predicting import BinaryClassifier, Predictor
from shoal.estimators.scores import d_squared, d_squared_of_gamma, r_squared
from shoal_learning.coding import Variable
from shoal_protocol.posteriors.base import LEVEL
from shoal_protocol.posteriors.plots import Scale
from shoal_protocol.posteriors.summaries import Summary
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.studies.linear_regression import (
    LinearRegressionPosterior,
    LinearRegressionTask,
)
from shoal_protocol.studies.logistic_regression import (
    LogisticRegressionPosterior,
    LogisticRegressionTask,
)
from shoal_protocol.studies.piecewise_exponential import PiecewiseExponentialPosterior
from shoal_protocol.studies.regression import (
    MeasuredRegressionPosterior,
    RegressionTask,
    TargetFamily,
)
from shoal_protocol.studies.regression.posterior import MeasuredCoefficients

if TYPE_CHECKING:
    from matplotlib.axes import Axes


RegressionT = TypeVar(
    "RegressionT",
    bound=LinearRegressionPosterior | LogisticRegressionPosterior | MeasuredRegressionPosterior,
)


JudgedT = TypeVar("JudgedT", bound=MeasuredCoefficients | PiecewiseExponentialPosterior)


class Regression(Predictor, Estimator[RegressionT]):
    """Base of all regressions: `features` and `target` are columns with their public bounds.

    In their place a `formula` may stand: see `shoal.formulas.parsing`.
    """

    @property
    def coef_(self) -> FloatVector:
        """Posterior means of the slopes, shape (m,): `posterior_` has their whole distribution.

        In the units of the data, but of the "unit_rows" method: there `predict` scales rows first.
        """
        coefficients = self._coefficients
        return np.array([coefficients[each.name] for each in self._features])

    @property
    def intercept_(self) -> float:
        """Posterior mean of the intercept, 0 without one."""
        return self._coefficients.get("intercept", 0.0)

    @property
    def _coefficients(self) -> dict[str, float]:
        self._require_fit()
        posterior = self.posterior_
        return dict(zip(posterior.names, posterior.mean.tolist(), strict=True))

    def _inputs(self, task: Any) -> tuple[ColumnBounds, ...]:
        self._features, self._target = task.features, task.target
        return self._features

    def _expected(self, rows: object) -> tuple[FloatVector, FloatVector]:
        """Return what the posterior expects of the target, and with which standard deviation."""
        table = self._table(rows)
        return self.posterior_.predict(table)

    def _means(self, rows: object) -> FloatVector:
        return self._expected(rows)[0]

    def _records_of(self, rows: object, targets: object) -> dict[str, Any]:
        return {"rows": self._table(rows), "targets": self._observed(rows, targets)}

    @overload
    def predict(self, rows: object, return_std: Literal[False] = False) -> NDArray[Any]: ...

    @overload
    def predict(
        self, rows: object, return_std: Literal[True]
    ) -> tuple[NDArray[Any], FloatVector]: ...

    def predict(
        self, rows: object, return_std: bool = False
    ) -> NDArray[Any] | tuple[NDArray[Any], FloatVector]:
        """Return the expected target of each row, shape (n,), and its standard deviation if asked.

        Of a logistic regression, the more probable of its `classes_`; the standard deviation is the
        posterior's of the upper class's probability.

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: a column is missing, or the rows cannot be used.
        """
        mean, sd = self._expected(rows)
        return (self._decided(mean), sd) if return_std else self._decided(mean)

    def predict_interval(self, rows: object, level: float = LEVEL) -> FloatMatrix:
        """Return intervals that hold `level`, shape (n, 2), within what is predicted can be.

        Of a linear regression they are a new record's target's, of a logistic one the probability's
        of the upper class, of others the mean's.

        Raises:
            NotFittedError, ValueError: as `predict`; or `level` is not between 0 and 1.
        """
        table = self._table(rows)
        return self.posterior_.predict_interval(table, level)

    def plot_predictions(
        self,
        rows: object,
        targets: object = None,
        axes: "Axes | None" = None,
        *,
        level: float = LEVEL,
    ) -> "Axes":
        """Draw predictions with their intervals, and `targets` if they are given; return the axes.

        Raises:
            NotFittedError, ValueError: as `predict`.
            ImportError: matplotlib is not installed.
        """
        observed = None if targets is None else self._observed(rows, targets)
        table = self._table(rows)
        return self.posterior_.plot_predictions(
            table, observed, axes, level=level, caption=self._caption, target=self._predicted
        )


class Judged(Estimator[JudgedT]):
    """What has a posterior with a verdict."""

    @property
    def verdict_(self) -> str:
        """What to make of the intervals: "trustworthy", "doubtful" or "prior", and why."""
        self._require_fit()
        return str(self.posterior_.verdict)

    def ratios(self, level: float = LEVEL) -> Summary:
        """Return odds, rate or hazard ratios for one unit of each feature, with intervals.

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: it is a linear regression, or `level` is not strictly between 0 and 1.
        """
        self._require_fit()
        found = self.posterior_.ratios(level)
        names = [self.posterior_.names[place] for place in self.posterior_.slopes]
        rows = tuple(
            (name, *(f"{each:.4g}" for each in row))
            for name, row in zip(names, found.tolist(), strict=True)
        )
        ends = (f"quantile {0.5 - level / 2.0:.4g}", f"quantile {0.5 + level / 2.0:.4g}")
        verdict = ("Verdict", self.verdict_)
        return Summary(self.posterior_.title, ("", self.posterior_.ratio, *ends), rows, (verdict,))

    def plot(
        self,
        axes: "Axes | None" = None,
        *,
        level: float = LEVEL,
        names: Sequence[str] | None = None,
        scale: Scale | None = None,
    ) -> "Axes":
        """Draw a forest plot with what it cost, and return the axes.

        `scale` "sd", or None, shows coefficients for a standard deviation of each feature, "unit"
        for one unit, and "ratio" the latter's exponentials; hazards are shown as ratios in any
        case but "unit".

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: `level` is not strictly between 0 and 1, a name or scale is unknown, or a
                linear regression has no ratios.
            ImportError: matplotlib is not installed.
        """
        self._require_fit()
        return self.posterior_.plot(
            axes, level=level, names=names, caption=self._caption, scale=scale
        )


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
    family: ClassVar[TargetFamily]
    _predictors: tuple[ColumnBounds, ...]

    def to_task(self, variables: Mapping[str, Variable] | None = None) -> RegressionTask:
        task: RegressionTask = self._checked(variables, family=self.family)
        return task

    def _inputs(self, task: Any) -> tuple[ColumnBounds, ...]:
        super()._inputs(task)
        self._predictors = task.predictors
        return self._predictors

    def _table(self, rows: object) -> FloatMatrix:
        self._require_fit()
        return self._design(rows, self._predictors)


class LinearRegression(MeasuredRegression):
    """Bayesian linear regression in three rounds; `score` is R^2.

    LinearRegression(features={"age": (18, 90)}, target={"pressure": (80, 180)})

    With `purpose` "prediction" predictions err less where noise is strong, and intervals may fail;
    that takes four rounds.
    """

    family = "normal"
    _fixed = frozenset({"name", "family", "offset"})
    task_type = RegressionTask
    _metric = staticmethod(r_squared)


class PoissonRegression(MeasuredRegression):
    """Bayesian Poisson regression of counts in five rounds; `score` is D^2.

    D^2 is the share of deviance explained. Intervals hold where counts scatter more, too.
    """

    family = "poisson"
    _from_zero = True
    task_type = RegressionTask
    _metric = staticmethod(d_squared)


class NegativeBinomialRegression(MeasuredRegression):
    """Bayesian regression of counts that scatter widely, in five rounds; `score` is D^2.

    Means are as in a Poisson regression, and D^2 is Poisson's. Records with large means weigh less.
    """

    family = "negative_binomial"
    _from_zero = True
    task_type = RegressionTask
    _metric = staticmethod(d_squared)


class GammaRegression(MeasuredRegression):
    """Bayesian gamma regression of positive numbers in five rounds; `score` is D^2.

    A mean's logarithm is linear, as of costs or lengths of stay, and numbers scatter in proportion.
    D^2 is the share of the gamma deviance that is explained.
    """

    family = "gamma"
    task_type = RegressionTask
    _metric = staticmethod(d_squared_of_gamma)


class LogisticRegression(BinaryClassifier, MeasuredRegression):
    """Bayesian logistic regression in five rounds; `score` is the accuracy.

    A target is of the class that is its bounds' upper end or of the lower one: `classes_`.
    Probabilities are averaged over the posterior.
    """

    family = "logistic"
    task_type = RegressionTask


class LinearRegressionInBounds(Regression[LinearRegressionPosterior]):
    """Bayesian linear regression in units of the bounds; `score` is R^2.

    Parameters: see `LinearRegressionTask`.

    LinearRegressionInBounds(features={"age": (18, 90)}, target={"pressure": (80, 180)})
    """

    task_type = LinearRegressionTask
    _centres_target = True
    _metric = staticmethod(r_squared)


class LogisticRegressionByGradients(BinaryClassifier, Regression[LogisticRegressionPosterior]):
    """Bayesian logistic regression; `score` is the accuracy. See `LogisticRegressionTask`.

    A target is of the class that is its bounds' upper end or of the lower one: `classes_`.
    Probabilities are averaged over the posterior. Intervals know of the noise, not of clipping;
    `posterior_.convergence` says if it arrived, as far as noise and clip let that be told.
    """

    task_type = LogisticRegressionTask
