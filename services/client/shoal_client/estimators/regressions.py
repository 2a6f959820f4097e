"""Estimators that predict a number from features: linear and Poisson regression, and their like."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import numpy as np

from shoal_client.estimators.base import Estimator, PosteriorT
from shoal_client.estimators.columns import Bounds, FloatMatrix, FloatVector, matrix_of, vector_of
from shoal_client.estimators.parameters import regressor_tags
from shoal_client.estimators.scores import d_squared, r_squared
from shoal_protocol.posteriors import (
    LinearRegressionDraws,
    LinearRegressionPosterior,
    PoissonRegressionPosterior,
    plots,
)
from shoal_protocol.posteriors.showing import LEVEL, below_picture
from shoal_protocol.tasks import (
    Centring,
    ColumnBounds,
    LinearRegressionTask,
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

    @property
    def coef_(self) -> FloatVector:
        """Posterior means of the slopes, shape (m,): `posterior_` has their whole distribution.

        In the units of the data, but of the "unit_rows" method: there `predict` scales rows first.
        """
        return np.array([self._means[name] for name in self.feature_names_in_.tolist()])

    @property
    def intercept_(self) -> float:
        """Posterior mean of the intercept, 0 without one."""
        return self._means.get("intercept", 0.0)

    @property
    def _means(self) -> dict[str, float]:
        self._require_fit()
        posterior: Any = self.posterior_
        return dict(zip(posterior.names, posterior.mean.tolist(), strict=True))

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
        if targets is None:
            targets = matrix_of(rows, [self._target.name])
        return vector_of(targets, "targets")

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
        mean, _ = self._expected(rows)
        observed = None
        if targets is not None:
            observed = self._observed(rows, targets)
            self._expected_like(rows, observed)
            observed = self._as_predicted(observed)
        return plots.predictions(
            mean,
            self.predict_interval(rows, level),
            observed,
            axes,
            level=level,
            target=self._predicted,
            caption=below_picture(self.posterior_, self._caption),
        )

    def predict_interval(self, rows: object, level: float = LEVEL) -> FloatMatrix:
        """Return intervals that hold `level`, shape (n, 2), within what is predicted can be.

        Of a linear regression they are a new record's target's, of a Poisson one its rate's, of a
        logistic one the probability's of the upper class.

        Raises:
            NotFittedError, ValueError: as `predict`; or `level` is not between 0 and 1.
        """
        self._require_fit()
        posterior: Any = self.posterior_
        table = matrix_of(rows, self.feature_names_in_.tolist())
        intervals: FloatMatrix = posterior.predict_interval(table, level)
        return intervals

    @property
    def _predicted(self) -> str:
        """What the predictions are of."""
        return self._target.name

    def _as_predicted(self, observed: FloatVector) -> FloatVector:
        """Return targets on the scale of the predictions."""
        return observed

    def __sklearn_tags__(self) -> Any:
        return regressor_tags()


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
        return r_squared(observed, self._expected_like(rows, observed))


@dataclass(kw_only=True, eq=False, repr=False)
class PoissonRegression(Regression[PoissonRegressionPosterior]):
    """Bayesian Poisson regression of counts; `score` is D^2, the share of deviance explained.

    Parameters: see `PoissonRegressionTask`. Intervals know of the noise, not of clipping;
    `posterior_.convergence` says if it arrived,
    as far as noise and clip let that be told.
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
        return d_squared(observed, self._expected_like(rows, observed))
