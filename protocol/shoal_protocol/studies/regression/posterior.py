"""The posterior of a regression in measured units: a normal distribution, in the data's units."""

from collections.abc import Mapping
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from shoal_protocol.posteriors.base import FloatMatrix, FloatVector, RegressionPosterior
from shoal_protocol.posteriors.intervals import normal_intervals
from shoal_protocol.posteriors.likelihoods import (
    logistic_log_density,
    normal_log_density,
    poisson_log_density,
)
from shoal_protocol.queries.models.regressions import probability, rate
from shoal_protocol.studies.regression.coefficients import MeasuredCoefficients

TargetFamily = Literal["normal", "logistic", "poisson", "negative_binomial"]
"""What a target is: a number, one of two classes, a count, a scattered count."""

_TITLES = {
    "normal": "Linear regression",
    "logistic": "Logistic regression",
    "poisson": "Poisson regression",
    "negative_binomial": "Negative binomial regression",
}


class MeasuredRegressionPosterior(MeasuredCoefficients, RegressionPosterior):
    """Gaussian posterior of a regression's coefficients, in the data's own units.

    `names` are "intercept", then the features. `scatter` is the residual standard deviation of a
    number; of a count or a class it is how many times as much as the family says targets scatter,
    in variance.
    """

    name: Literal["regression"] = "regression"
    family: TargetFamily

    @model_validator(mode="after")
    def _constant_first(self) -> Self:
        if len(self.spreads) != len(self.names) - 1:
            raise ValueError("each feature has a spread")
        if len(self.names) < 2 or self.names[0] != "intercept":
            raise ValueError("names must be the intercept and then the features")
        return self

    @property
    def title(self) -> str:
        """What it is a posterior of, in words."""
        return f"{_TITLES[self.family]} of {self.target}"

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        what = "Residual sd" if self.family == "normal" else "Scatter over the family's"
        return (("Verdict", str(self.verdict)), (what, f"{self.scatter:.4g}"))

    @property
    def units_drawn(self) -> FloatVector:
        return np.array([1.0, *self.spreads])

    def predict(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of what is predicted, shapes (n,), for `rows`, (n, m).

        Of a number it is a new record's target, coefficients and residual together; of two classes
        the probability of the upper one, and of counts their mean, over the posterior.

        Raises:
            ValueError: `rows` does not have one column per feature.
        """
        mean, sd = self._predictor(rows)
        if self.family == "normal":
            return mean, np.hypot(sd, self.scatter)
        if self.family == "logistic":
            nodes, weights = np.polynomial.hermite_e.hermegauss(40)
            values, weights = (
                probability(mean[:, None] + sd[:, None] * nodes),
                weights / sum(weights),
            )
            expected = values @ weights
            return expected, np.sqrt(np.maximum((values - expected[:, None]) ** 2 @ weights, 0.0))
        expected = rate(mean + 0.5 * sd**2)
        share = np.sqrt(np.expm1(np.minimum(sd**2, 100.0)))
        return expected, expected * np.minimum(share, 1e308 / np.maximum(expected, 1.0))

    def predict_interval(self, rows: FloatMatrix, level: float) -> FloatMatrix:
        """Return intervals that hold `level` of what `predict` is about, shape (n, 2).

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """
        if self.family == "normal":
            return normal_intervals(*self.predict(rows), level)
        ends = normal_intervals(*self._predictor(rows), level)
        return probability(ends) if self.family == "logistic" else rate(ends)

    def _predictor(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of the linear predictor, shapes (n,)."""
        checked = self._checked_rows(rows)
        design = np.column_stack([np.ones(len(checked)), checked])
        variance = np.einsum("ni,ij,nj->n", design, self.covariance_matrix, design)
        return design @ self.mean, np.sqrt(np.maximum(variance, 0.0))

    def _log_densities(self, targets: FloatVector, predictors: FloatMatrix) -> FloatMatrix:
        match self.family:
            case "normal":
                return normal_log_density(targets, predictors, self.scatter)
            case "logistic":
                return logistic_log_density(targets, predictors)
            case "poisson":
                return poisson_log_density(targets, predictors)
            case _:
                raise ValueError("the posterior of scattered counts has no likelihood of a record")

    def _attributes(self) -> Mapping[str, str | int | float]:
        return {
            **super()._attributes(),
            "target": self.target,
            "scatter": self.scatter,
            "verdict": str(self.verdict),
        }
