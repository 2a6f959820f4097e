"""Estimators in scikit-learn's habit, fitted on a federation instead of on records.

from shoal import Federation
from shoal.estimators import LinearRegression

model = LinearRegression(features={"age": (18, 90)}, target={"pressure": (80, 180)})
model.fit(federation).predict(rows)

Those named Crowd... are learned by Draw and Discard: fitted on a CrowdFederation.
"""

from shoal.estimators.base import Estimator
from shoal.estimators.crowds import (
    CrowdLinearRegression,
    CrowdLogisticRegression,
    CrowdPoissonRegression,
)
from shoal.estimators.families import (
    Bernoulli,
    Categorical,
    MultivariateNormal,
    Normal,
    NormalMean,
    Poisson,
)
from shoal.estimators.numpyro_models import NumpyroModel
from shoal.estimators.parameters import NotFittedError
from shoal.estimators.regressions import LinearRegression, LogisticRegression, PoissonRegression

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
