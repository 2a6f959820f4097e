"""Counts from features: Poisson regression by variational inference."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.posteriors.intervals import normal_intervals
from shoal_protocol.posteriors.likelihoods import poisson_log_density
from shoal_protocol.posteriors.variational_regression import VariationalRegressionPosterior
from shoal_protocol.queries.models import PoissonRegressionModel
from shoal_protocol.queries.models.regressions import rate
from shoal_protocol.studies.variational import Positive, RegressionStudy
from shoal_protocol.trust.codings import Coding, codings_of_target


class PoissonRegressionPosterior(VariationalRegressionPosterior):
    """Posterior of a Poisson regression's coefficients: see VariationalPosterior."""

    name: Literal["poisson_regression"] = "poisson_regression"

    def predict(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return the expected count and the rate's posterior sd, shapes (n,), for `rows`, (n, m).

        Raises:
            ValueError: `rows` does not have one column per feature.
        """
        mean, sd = self._predictor(rows)
        expected = rate(mean + 0.5 * sd**2)
        share = np.sqrt(np.expm1(np.minimum(sd**2, 100.0)))
        return expected, expected * np.minimum(share, 1e308 / np.maximum(expected, 1.0))

    def predict_interval(self, rows: FloatMatrix, level: float) -> FloatMatrix:
        """Return intervals that hold `level` of the posterior of the rate, shape (n, 2).

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """
        return rate(normal_intervals(*self._predictor(rows), level))

    def _log_densities(self, targets: FloatVector, predictors: FloatMatrix) -> FloatMatrix:
        return poisson_log_density(targets, predictors)


class PoissonRegressionTask(RegressionStudy):
    """Bayesian Poisson regression with logarithmic link: the target counts, from 0 to its bound."""

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (PoissonRegressionPosterior,)
    example: ClassVar[str] = """\
[task]
name = "poisson_regression"
rounds = 100
batch = 400                    # clients asked in a round: more than dropouts + colluders + 1

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]

[target]                       # 0, and the largest count
visits = [0, 20]
"""

    name: Literal["poisson_regression"] = "poisson_regression"
    clip: Positive = 2.0
    prior_sd: Positive = 1.0

    @model_validator(mode="after")
    def _counts(self) -> "PoissonRegressionTask":
        if self.target.lower != 0.0:
            raise ValueError("a count's lower bound must be 0")
        return self

    @property
    def codings(self) -> tuple[Coding, ...]:
        return (*super().codings, *codings_of_target("poisson", self.target))

    @property
    def model(self) -> PoissonRegressionModel:
        """The model whose gradients are asked for."""
        return PoissonRegressionModel(intercept=self.intercept, largest_count=self.target.upper)
