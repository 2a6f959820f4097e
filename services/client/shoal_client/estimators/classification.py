"""Estimators that predict one class of two from features: logistic regression."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, overload

import numpy as np

from shoal_client.estimators.columns import Bounds, FloatMatrix, FloatVector
from shoal_client.estimators.parameters import classifier_tags
from shoal_client.estimators.regressions import Regression
from shoal_protocol.posteriors import LogisticRegressionPosterior
from shoal_protocol.tasks import LogisticRegressionTask


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticRegression(Regression[LogisticRegressionPosterior]):
    """Bayesian logistic regression; `score` is the accuracy. See `LogisticRegressionTask`.

    A target is of the class that is its bounds' upper end or of the lower one: `classes_`.
    Intervals know of the noise, not of clipping; `posterior_.convergence` says if it arrived,
    as far as noise and clip let that be told.
    """

    task_type: ClassVar[type[LogisticRegressionTask]] = LogisticRegressionTask
    _estimator_type: ClassVar[str] = "classifier"

    features: Bounds
    target: Bounds
    rounds: int
    batch: int | None
    clip: float = 1.0
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
        return classifier_tags()
