"""One class of two from features: logistic regression by variational inference."""

from typing import ClassVar, Literal

import numpy as np

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.posteriors.intervals import normal_intervals
from shoal_protocol.posteriors.likelihoods import logistic_log_density
from shoal_protocol.posteriors.variational_regression import VariationalRegressionPosterior
from shoal_protocol.queries.models import LogisticRegressionModel
from shoal_protocol.queries.models.regressions import probability
from shoal_protocol.studies.variational import LearningRate, Positive, RegressionStudy
from shoal_protocol.trust.codings import Coding, codings_of_target


class LogisticRegressionPosterior(VariationalRegressionPosterior):
    """Posterior of a logistic regression's coefficients: see VariationalPosterior."""

    name: Literal["logistic_regression"] = "logistic_regression"

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


class LogisticRegressionTask(RegressionStudy):
    """Bayesian logistic regression: the target is at its upper bound (1) or its lower one (0)."""

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
    clip: Positive = 1.0
    learning_rate: LearningRate = 0.2
    prior_sd: Positive = 3.0

    @property
    def codings(self) -> tuple[Coding, ...]:
        return (*super().codings, *codings_of_target("logistic", self.target))

    @property
    def model(self) -> LogisticRegressionModel:
        """The model whose gradients are asked for."""
        return LogisticRegressionModel(intercept=self.intercept)
