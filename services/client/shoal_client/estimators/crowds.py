"""Estimators that crowds learn by Draw and Discard: coefficients and predictions, no posterior.

They have neither intervals nor standard deviations: what the noise alone does to a coefficient is
known by theory, and how far the model is from what the records would give is not (decision 31).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from shoal_client.crowd_federation import LearningCrowd, WaitingCrowd
from shoal_client.estimators.columns import Bounds, FloatMatrix, FloatVector, matrix_of, vector_of
from shoal_client.estimators.parameters import (
    NotFittedError,
    Parameters,
    classifier_tags,
    regressor_tags,
)
from shoal_client.estimators.scores import d_squared, r_squared
from shoal_protocol.draw_and_discard.model import CrowdModel
from shoal_protocol.draw_and_discard.stationarity import SNAPSHOTS_NEEDED, Stationarity
from shoal_protocol.draw_and_discard.tasks import Clipping, CrowdTask, Family, Variant
from shoal_protocol.posteriors import plots
from shoal_protocol.posteriors.summaries import Summary, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdRegression(Parameters):
    """A regression that a crowd learns. Parameters: see `CrowdTask`; `epsilon` is of one step.

    After `fit`: `model_`, `snapshots_` (those before it, ascending), `coef_`, shape (m,), and
    `intercept_`, both in the units of the data, `n_features_in_` and `feature_names_in_`.
    """

    task_type: ClassVar[type[CrowdTask]] = CrowdTask
    column_parameters: ClassVar[Mapping[str, Literal["one", "several"]]] = {
        "features": "several",
        "target": "one",
    }
    family: ClassVar[Family]
    _estimator_type: ClassVar[str] = "regressor"

    features: Bounds
    target: Bounds
    epsilon: float
    clip: float
    learning_rate: float
    instances: int
    intercept: bool = True
    variant: Variant = "one"
    clipping: Clipping = "coordinate"
    l2: float = 0.0
    grid_bits: int = 20
    start: tuple[float, ...] | None = None

    def to_task(self) -> CrowdTask:
        """Return the task that the parameters describe, as a crowd gets it.

        Raises:
            ValueError: they describe none; the message names the parameter.
        """
        task: CrowdTask = self._checked(family=self.family)
        return task

    def fit(self, crowd: LearningCrowd) -> Self:
        """Have it learned by a crowd, for real or in a simulation, and return the estimator.

        Raises:
            ValueError: a parameter is not usable, or `crowd` is none.
            JobRefused, JobFailed, JobInterrupted, Unavailable: as `CrowdFederation.learn`.
        """
        if not callable(getattr(crowd, "learn", None)):
            raise ValueError(
                "fit takes a crowd, for records stay with their holders: shoal_client's "
                "CrowdFederation, or shoal_learning's SimulatedCrowd of records that you have"
            )
        return self._take(*crowd.learn(self.to_task()))

    def fit_from(self, job: WaitingCrowd) -> Self:
        """Be fitted by a job that was opened earlier: `CrowdFederation.resume(id)`; waits for it.

        Raises:
            ValueError: a parameter is not usable, or the job is of another task.
            JobFailed, JobInterrupted, Unavailable: as `SubmittedCrowd.wait`.
        """
        task, models = self.to_task(), job.wait()
        had = models[-1].task.model_dump()
        different = [name for name, value in task.model_dump().items() if had[name] != value]
        if different:
            raise ValueError(f"the job was opened with another {', '.join(different)}")
        return self._take(*models)

    def _take(self, *models: CrowdModel) -> Self:
        *earlier, self.model_ = models
        self.snapshots_ = tuple(earlier)
        self.intercept_, self.coef_ = self.model_.coefficients[0], self.model_.coefficients[1:]
        names = [bounds.name for bounds in self.model_.task.features]
        self.n_features_in_ = len(names)
        self.feature_names_in_: NDArray[np.object_] = np.array(names, dtype=object)
        return self

    def predict(self, rows: object) -> FloatVector:
        """Return the expected target of each row, shape (n,).

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: a column is missing, or the rows cannot be used.
        """
        self._require_fit()
        return self.model_.predict(matrix_of(rows, self.feature_names_in_.tolist()))

    def score(self, rows: object, targets: object = None) -> float:
        """Return how well `targets`, shape (n,), are predicted: at most 1.

        None takes the targets from the rows' column of that name.

        Raises:
            NotFittedError, ValueError: as `predict`.
        """
        raise NotImplementedError

    def _both(self, rows: Any, targets: object) -> tuple[FloatVector, FloatVector]:
        """Return targets, those given or those in the rows, and what the model expects of them."""
        self._require_fit()
        if targets is None:
            targets = matrix_of(rows, [self.model_.task.target.name])
        observed = vector_of(targets, "targets")
        expected = CrowdRegression.predict(self, rows)
        if expected.shape != observed.shape:
            raise ValueError("targets must have one number for each row")
        return observed, expected

    def stationarity(self, *, window: int | None = None) -> Stationarity:
        """Tell by the snapshots whether the spread over instances has settled.

        `window`: how many of the last contributions count; 50 k^2 if it is None.

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: there are fewer than two in the window, with the model.
        """
        self._require_fit()
        return self.model_.stationarity(self.snapshots_, pulled=True, window=window)

    def summary(self) -> Summary:
        """Return the coefficients and what they cost, as `CrowdModel.summary`.

        Raises:
            NotFittedError: nothing was learned yet.
        """
        self._require_fit()
        return self.model_.summary()

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw the normalised weights, and how far the noise alone should move each.

        A bar is two standard deviations to each side by theory (`CrowdModel.noise_error`), and no
        interval.

        Raises:
            NotFittedError: nothing was learned yet.
            ImportError: matplotlib is not installed.
        """
        self._require_fit()
        model = self.model_
        return plots.with_noise(
            model.task.weight_names,
            model.averaged,
            model.noise_error(),
            axes,
            title=f"{model.title}, normalised",
            caption="bars: the noise alone, by theory; no intervals",
        )

    def plot_stationarity(self, axes: "Axes | None" = None) -> "Axes":
        """Draw the spread over instances at each snapshot, relative to where it should settle.

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: there are no snapshots before the model, or it is of a single instance.
            ImportError: matplotlib is not installed.
        """
        self._require_fit()
        if not self.snapshots_ or self.model_.task.instances == 1:
            raise ValueError(f"it takes several instances, and {SNAPSHOTS_NEEDED}")
        models = (*self.snapshots_, self.model_)
        formula = np.array([each.spread for each in self.model_.learning()])
        return plots.settling(
            np.array([each.contributions for each in models]),
            np.array([float(np.mean(each.spread / formula)) for each in models]),
            axes,
            caption="by theory, for evenly spread features",
        )

    def _require_fit(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")

    def _repr_html_(self) -> str:
        if not self.__sklearn_is_fitted__():
            return Summary(visible(repr(self)), (), (), (("", "not fitted"),))._repr_html_()
        return self.summary()._repr_html_()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        return regressor_tags()


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdLinearRegression(CrowdRegression):
    """Linear regression that a crowd learns; `score` is R^2."""

    family: ClassVar[Family] = "linear"

    def score(self, rows: object, targets: object = None) -> float:
        """Return R^2, the coefficient of determination; see `CrowdRegression.score`."""
        return r_squared(*self._both(rows, targets))


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdPoissonRegression(CrowdRegression):
    """Poisson regression of counts that a crowd learns; `score` is D^2, of the deviance."""

    family: ClassVar[Family] = "poisson"

    def score(self, rows: object, targets: object = None) -> float:
        """Return D^2, the share of the Poisson deviance that is explained."""
        return d_squared(*self._both(rows, targets))


@dataclass(kw_only=True, eq=False, repr=False)
class CrowdLogisticRegression(CrowdRegression):
    """Logistic regression that a crowd learns; `score` is the accuracy. A target is 0 or 1."""

    family: ClassVar[Family] = "logistic"
    _estimator_type: ClassVar[str] = "classifier"

    @property
    def classes_(self) -> FloatVector:
        """The two classes, shape (2,): 0 and 1."""
        self._require_fit()
        return np.array([0.0, 1.0])

    def predict_proba(self, rows: object) -> FloatMatrix:
        """Return the probability of each class, shape (n, 2).

        Raises:
            NotFittedError, ValueError: as `predict`.
        """
        upper = super().predict(rows)
        return np.column_stack([1.0 - upper, upper])

    def predict(self, rows: object) -> FloatVector:
        """Return the more probable class of each row, shape (n,).

        Raises:
            NotFittedError, ValueError: as `CrowdRegression.predict`.
        """
        return (super().predict(rows) > 0.5).astype(np.float64)

    def score(self, rows: object, targets: object = None) -> float:
        """Return the share of targets whose class is predicted."""
        observed, upper = self._both(rows, targets)
        if not np.isin(observed, self.classes_).all():
            raise ValueError("targets must be 0 or 1")
        return float(np.mean((upper > 0.5) == (observed == 1.0)))

    def __sklearn_tags__(self) -> Any:
        return classifier_tags()
