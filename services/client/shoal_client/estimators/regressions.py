"""Estimators that predict a target from features: linear, logistic and Poisson regression."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import numpy as np

from shoal_client.estimators.base import Estimator, PosteriorT
from shoal_client.estimators.columns import Bounds, FloatMatrix, FloatVector, matrix_of, vector_of
from shoal_protocol.posteriors import (
    LinearRegressionDraws,
    LinearRegressionPosterior,
    LogisticRegressionPosterior,
    PoissonRegressionPosterior,
    plots,
)
from shoal_protocol.posteriors.showing import LEVEL
from shoal_protocol.tasks import (
    Centring,
    ColumnBounds,
    LinearRegressionTask,
    LogisticRegressionTask,
    PoissonRegressionTask,
    RegressionMethod,
)
from shoal_protocol.tasks.linear_regression import Inference

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Regression(Estimator[PosteriorT]):
    """What all regressions do: `features` and `target` are columns with their public bounds.

    Rows are arrays with one column for each feature, in order, or have columns by name.
    """

    column_parameters: ClassVar[Mapping[str, Literal["one", "several"]]] = {
        "features": "several",
        "target": "one",
    }
    _estimator_type: ClassVar[str] = "regressor"

    _target: ColumnBounds

    def _inputs(self, task: Any) -> tuple[ColumnBounds, ...]:
        self._target = task.target
        features: tuple[ColumnBounds, ...] = task.features
        return features

    def _expected(self, rows: object) -> tuple[FloatVector, FloatVector]:
        """Return what the posterior expects of the target, and with which standard deviation."""
        self._require_fit()
        posterior: Any = self.posterior_
        names = self.feature_names_in_.tolist()
        predicted: tuple[FloatVector, FloatVector] = posterior.predict(matrix_of(rows, names))
        return predicted

    def _observed(self, rows: Any, targets: object) -> FloatVector:
        """Return targets, shape (n,): those given, or those in the rows."""
        self._require_fit()
        if targets is not None:
            return vector_of(targets, "targets")
        return matrix_of(rows, [self._target.name])[:, 0]

    def _expected_like(self, rows: object, observed: FloatVector) -> FloatVector:
        expected, _ = self._expected(rows)
        if expected.shape != observed.shape:
            raise ValueError("targets must have one number for each row")
        return expected

    @overload
    def predict(self, rows: object, return_std: Literal[False] = False) -> FloatVector: ...

    @overload
    def predict(
        self, rows: object, return_std: Literal[True]
    ) -> tuple[FloatVector, FloatVector]: ...

    def predict(
        self, rows: object, return_std: bool = False
    ) -> FloatVector | tuple[FloatVector, FloatVector]:
        """Return the expected target of each row, shape (n,), and its standard deviation if asked.

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: a column is missing, or the rows cannot be used.
        """
        mean, sd = self._expected(rows)
        return (mean, sd) if return_std else mean

    def score(self, rows: object, targets: object = None) -> float:
        """Return how well `targets`, shape (n,), are predicted: at most 1.

        None takes the targets from the rows' column of that name.

        Raises:
            NotFittedError, ValueError: as `predict`.
        """
        raise NotImplementedError

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
        mean, sd = self._expected(rows)
        observed = None
        if targets is not None:
            observed = self._observed(rows, targets)
            self._expected_like(rows, observed)
            observed = self._as_predicted(observed)
        return plots.predictions(
            mean,
            sd,
            observed,
            axes,
            level=level,
            target=self._predicted,
            caption=self._caption,
        )

    @property
    def _predicted(self) -> str:
        """What the predictions are of."""
        return self._target.name

    def _as_predicted(self, observed: FloatVector) -> FloatVector:
        """Return targets on the scale of the predictions."""
        return observed

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=False),
            regressor_tags=RegressorTags(),
        )


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRegression(Regression[LinearRegressionPosterior | LinearRegressionDraws]):
    """Bayesian linear regression; `score` is R^2. Parameters: see `LinearRegressionTask`.

    LinearRegression(features={"age": (18, 90)}, target={"pressure": (80, 180)})
    """

    task_type: ClassVar[type[LinearRegressionTask]] = LinearRegressionTask

    features: Bounds
    target: Bounds
    method: RegressionMethod = "norm_ball"
    centring: Centring = "bounds"
    inference: Inference = "quasi_likelihood"
    target_reach: float | None = None
    radius: float | None = None
    intercept: float = 0.3
    prior_sd: float = 0.5
    grid_bits: int = 12
    records_per_client: int = 1

    def score(self, rows: object, targets: object = None) -> float:
        """Return R^2, the coefficient of determination; see `Regression.score`."""
        observed = self._observed(rows, targets)
        rest = np.sum((observed - self._expected_like(rows, observed)) ** 2)
        return _explained(float(rest), float(np.sum((observed - observed.mean()) ** 2)))


@dataclass(kw_only=True, eq=False, repr=False)
class PoissonRegression(Regression[PoissonRegressionPosterior]):
    """Bayesian Poisson regression of counts; `score` is D^2, the share of deviance explained.

    Parameters: see `PoissonRegressionTask`. Intervals are too narrow: the posterior says why.
    """

    task_type: ClassVar[type[PoissonRegressionTask]] = PoissonRegressionTask

    features: Bounds
    target: Bounds
    rounds: int
    batch: int | None
    clip: float = 2.0
    learning_rate: float = 0.1
    intercept: float = 0.3
    prior_sd: float = 1.0
    grid_bits: int = 20
    records_per_client: int = 1
    participation: float | None = None

    def score(self, rows: object, targets: object = None) -> float:
        """Return D^2, the share of the Poisson deviance that is explained."""
        observed = self._observed(rows, targets)
        if (observed < 0.0).any():
            raise ValueError("counts must not be negative")
        expected = self._expected_like(rows, observed)
        return _explained(
            _poisson_deviance(observed, expected),
            _poisson_deviance(observed, np.full_like(observed, observed.mean())),
        )


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(Regression[LogisticRegressionPosterior]):
    """Bayesian logistic regression; `score` is the accuracy. See `LogisticRegressionTask`.

    A target is of the class that is its bounds' upper end or of the lower one: `classes_`.
    Intervals are too narrow: the posterior says why.
    """

    task_type: ClassVar[type[LogisticRegressionTask]] = LogisticRegressionTask
    _estimator_type: ClassVar[str] = "classifier"

    features: Bounds
    target: Bounds
    rounds: int
    batch: int | None
    clip: float = 0.25
    learning_rate: float = 0.2
    intercept: float = 0.3
    prior_sd: float = 3.0
    grid_bits: int = 20
    records_per_client: int = 1
    participation: float | None = None

    @property
    def classes_(self) -> FloatVector:
        """The two classes, shape (2,): the target's lower bound, then its upper one."""
        self._require_fit()
        return np.array([self._target.lower, self._target.upper])

    def predict_proba(self, rows: object) -> FloatMatrix:
        """Return the probability of each class, shape (n, 2), the posterior averaged over.

        Raises:
            NotFittedError, ValueError: as `predict`.
        """
        upper, _ = self._expected(rows)
        return np.column_stack([1.0 - upper, upper])

    @overload
    def predict(self, rows: object, return_std: Literal[False] = False) -> FloatVector: ...

    @overload
    def predict(
        self, rows: object, return_std: Literal[True]
    ) -> tuple[FloatVector, FloatVector]: ...

    def predict(
        self, rows: object, return_std: bool = False
    ) -> FloatVector | tuple[FloatVector, FloatVector]:
        """Return the more probable class of each row, shape (n,).

        With `return_std` also the posterior standard deviation of the upper class's probability.

        Raises:
            NotFittedError, ValueError: as `Regression.predict`.
        """
        upper, sd = self._expected(rows)
        classes = self.classes_[(upper > 0.5).astype(np.intp)]
        return (classes, sd) if return_std else classes

    def score(self, rows: object, targets: object = None) -> float:
        """Return the share of targets whose class is predicted."""
        observed = self._observed(rows, targets)
        upper = self._expected_like(rows, observed) > 0.5
        return float(np.mean(upper == (observed == self._target.upper)))

    @property
    def _predicted(self) -> str:
        return f"probability that {self._target.name} is {self._target.upper:g}"

    def _as_predicted(self, observed: FloatVector) -> FloatVector:
        return np.where(observed == self._target.upper, 1.0, 0.0)

    def _observed(self, rows: Any, targets: object) -> FloatVector:
        observed = super()._observed(rows, targets)
        if not np.isin(observed, self.classes_).all():
            raise ValueError("targets must be the target's lower or upper bound: see classes_")
        return observed

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=False),
            classifier_tags=ClassifierTags(multi_class=False),
        )


def _explained(rest: float, whole: float) -> float:
    """Return 1 - rest / whole; of targets that are all the same, 1 if nothing is left, else 0."""
    if whole == 0.0:
        return float(rest == 0.0)
    return 1.0 - rest / whole


def _poisson_deviance(counts: FloatVector, expected: FloatVector) -> float:
    """Return twice the sum of y log(y / mu) - y + mu (McCullagh and Nelder 1989, section 2.3)."""
    positive = counts > 0.0
    logs = counts[positive] * np.log(counts[positive] / expected[positive])
    return float(2.0 * (logs.sum() - np.sum(counts - expected)))
