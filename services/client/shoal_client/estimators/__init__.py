"""Estimators in scikit-learn's habit, fitted on a federation instead of on records.

from shoal_client import Federation
from shoal_client.estimators import LinearRegression

model = LinearRegression(features={"age": (18, 90)}, target={"pressure": (80, 180)})
model.fit(federation).predict(rows)

Those named Crowd... are learned by Draw and Discard: fitted on a CrowdFederation.
"""

from shoal_client.estimators.base import Estimator
from shoal_client.estimators.classification import LogisticRegression
from shoal_client.estimators.crowds import (
    CrowdLinearRegression,
    CrowdLogisticRegression,
    CrowdPoissonRegression,
)
from shoal_client.estimators.families import (
    Bernoulli,
    Categorical,
    MultivariateNormal,
    Normal,
    NormalMean,
    Poisson,
)
from shoal_client.estimators.numpyro_models import NumpyroModel
from shoal_client.estimators.parameters import NotFittedError
from shoal_client.estimators.regressions import LinearRegression, PoissonRegression

__all__ = [
    "Bernoulli",
    "Categorical",
    "CrowdLinearRegression",
    "CrowdLogisticRegression",
    "CrowdPoissonRegression",
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
