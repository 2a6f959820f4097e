"""Estimators in scikit-learn's habit, fitted on a federation instead of on records.

from shoal_client import Federation
from shoal_client.estimators import LinearRegression

model = LinearRegression(features={"age": (18, 90)}, target={"pressure": (80, 180)})
model.fit(federation).predict(rows)
"""

from shoal_client.estimators.base import Estimator, NotFittedError
from shoal_client.estimators.classification import LogisticRegression
from shoal_client.estimators.families import (
    Bernoulli,
    Categorical,
    MultivariateNormal,
    Normal,
    NormalMean,
    Poisson,
)
from shoal_client.estimators.numpyro_models import NumpyroModel
from shoal_client.estimators.regressions import LinearRegression, PoissonRegression

__all__ = [
    "Bernoulli",
    "Categorical",
    "Estimator",
    "LinearRegression",
    "LogisticRegression",
    "MultivariateNormal",
    "Normal",
    "NormalMean",
    "NotFittedError",
    "NumpyroModel",
    "Poisson",
    "PoissonRegression",
]
