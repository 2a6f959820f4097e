"""One class of two from features: logistic regression by variational inference."""

from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import (
    BasePosterior,
    FloatMatrix,
    FloatVector,
    RegressionPosterior,
)
from shoal_protocol.posteriors.intervals import normal_intervals, normal_quantiles
from shoal_protocol.posteriors.likelihoods import logistic_log_density
from shoal_protocol.posteriors.priors import Prior
from shoal_protocol.posteriors.variational import VariationalPosterior
from shoal_protocol.queries import Column
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.models import LogisticRegressionModel
from shoal_protocol.queries.models.regressions import probability
from shoal_protocol.studies.variational import LearningRate, Positive, VariationalStudy
from shoal_protocol.trust.codings import Coding, codings_of_target


class LogisticRegressionPosterior(RegressionPosterior, VariationalPosterior):
    """Coefficients of a logistic regression, in the data's own units: see VariationalPosterior.

    `names` are "intercept", then the features.

    In normalised units u_j = (x_j - centre_j) / scale_j the predictor is `intercept` b_0 +
    sum b_j u_j. `location` and `scale` are those of b, which is normal. Without a constant term
    `intercept` is 0 and there is no b_0.
    """

    name: Literal["logistic_regression"] = "logistic_regression"
    feature_columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _one_for_each_coefficient(self) -> Self:
        if len(self.location) != len(self.feature_columns) + (self.intercept > 0.0):
            raise ValueError("location must have one number for each coefficient")
        if self.names != ("intercept", *(column.name for column in self.feature_columns)):
            raise ValueError("names must be the intercept and the features, in order")
        return self

    @property
    def mean(self) -> FloatVector:
        mean: FloatVector = self._to_data_units @ np.array(self.location)
        return mean

    @property
    def covariance_matrix(self) -> FloatMatrix:
        """Posterior covariance of the coefficients, shape (k, k)."""
        root = self.root_of(self._to_data_units)
        covariance: FloatMatrix = root @ root.T
        return covariance

    @property
    def sd(self) -> FloatVector:
        return np.sqrt(np.diagonal(self.covariance_matrix))

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        return normal_quantiles(self.mean, self.sd, high)

    @property
    def prior(self) -> Prior | None:
        if self.prior_sd is None:
            return None
        sd = np.linalg.norm(self._to_data_units * np.array(self.prior_sd), axis=1)
        return Prior(np.zeros(len(sd)), sd)

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        standard: FloatMatrix = generator.standard_normal((count, len(self.location)))
        draws: FloatMatrix = self.unconstrained_from(standard) @ self._to_data_units.T
        return draws

    @property
    def _to_data_units(self) -> FloatMatrix:
        """The linear map, shape (k, d), from normalised coefficients to those of the data."""
        centres = np.array([column.centre for column in self.feature_columns])
        slopes = 1.0 / np.array([column.scale for column in self.feature_columns])
        matrix: FloatMatrix = np.vstack([-centres * slopes, np.diag(slopes)])
        if self.intercept == 0.0:
            return matrix
        first = np.zeros(len(matrix))
        first[0] = self.intercept
        return np.column_stack([first, matrix])

    def _design(self, rows: FloatMatrix) -> FloatMatrix:
        """Values are cut to the features' bounds, as they were when it was learned."""
        centres = np.array([column.centre for column in self.feature_columns])
        scales = np.array([column.scale for column in self.feature_columns])
        return super()._design(np.clip(rows, centres - scales, centres + scales))

    def _predictor(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of the linear predictor, shapes (n,), for `rows`.

        Values are cut to the features' bounds, as they were when it was learned.
        """
        rows = self._checked_rows(rows)
        centres = np.array([column.centre for column in self.feature_columns])
        scales = np.array([column.scale for column in self.feature_columns])
        design = np.clip((rows - centres) / scales, -1.0, 1.0)
        if self.intercept > 0.0:
            design = np.column_stack([np.full(len(design), self.intercept), design])
        return design @ np.array(self.location), np.linalg.norm(self.root_of(design), axis=1)

    def predict(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return the probability that the target is at its upper bound, and its posterior sd.

        Shapes (n,), for `rows`, shape (n, m); means over the posterior by Gauss and Hermite's rule.

        Raises:
            ValueError: `rows` does not have one column per feature.
        """
        mean, sd = self._predictor(rows)
        nodes, weights = np.polynomial.hermite_e.hermegauss(40)
        values = probability(mean[:, None] + sd[:, None] * nodes)
        weights = weights / weights.sum()
        expected = values @ weights
        spread = np.maximum((values - expected[:, None]) ** 2 @ weights, 0.0)
        return expected, np.sqrt(spread)

    def predict_interval(self, rows: FloatMatrix, level: float) -> FloatMatrix:
        """Return intervals that hold `level` of the posterior of that probability, shape (n, 2).

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """
        return probability(normal_intervals(*self._predictor(rows), level))

    def _log_densities(self, targets: FloatVector, predictors: FloatMatrix) -> FloatMatrix:
        return logistic_log_density(targets, predictors)


class LogisticRegressionTask(VariationalStudy):
    """Bayesian logistic regression: the target is at its upper bound (1) or its lower one (0).

    Columns are normalised: centred at the middle of their bounds, divided by half the range.
    `intercept` is the constant coordinate in a row (0: no constant term). Coefficients are normal
    with mean 0 and standard deviation `prior_sd`, in these units; what the constant term adds to
    the linear predictor has twice that.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (LogisticRegressionPosterior,)
    example: ClassVar[str] = """\
[task]
name = "logistic_regression"
rounds = 100
batch = 400                    # clients asked in a round: more than dropouts + colluders + 1

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]

[target]                       # yes is whatever lies above the middle
smoker = [0, 1]
"""

    name: Literal["logistic_regression"] = "logistic_regression"
    features: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=510)]
    target: ColumnBounds
    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] = 0.3
    clip: Positive = 1.0
    learning_rate: LearningRate = 0.2
    prior_sd: Positive = 3.0

    @model_validator(mode="after")
    def _consistent(self) -> "LogisticRegressionTask":
        names = [feature.name for feature in self.features]
        if len(set(names)) != len(names):
            raise ValueError("two features have the same name")
        if self.target.name in names:
            raise ValueError("the target must not be one of the features")
        if "intercept" in names:
            raise ValueError("no feature may be called 'intercept': the constant term is")
        if 0.0 < self.intercept < 0.01:
            raise ValueError("the intercept must be 0.01 or more, or 0 for no constant term")
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The features in order, then the target: the columns of a client's records."""
        return (*self.features, self.target)

    @property
    def codings(self) -> tuple[Coding, ...]:
        return (*super().codings, *codings_of_target("logistic", self.target))

    @property
    def model(self) -> LogisticRegressionModel:
        """The model whose gradients are asked for."""
        return LogisticRegressionModel(intercept=self.intercept)
