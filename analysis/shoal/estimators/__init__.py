"""Estimators in scikit-learn's habit, fitted on a federation instead of on records.

from shoal import Federation
from shoal.estimators import LinearRegression

model = LinearRegression(features={"age": (18, 90)}, target={"pressure": (80, 180)})
model.fit(federation).predict(rows)

There is one for each study, with the task's parameters, and one for each family of regressions.
"""

from typing import TYPE_CHECKING, Any

from shoal.estimators.base import Estimator
from shoal.estimators.counting import Categorical, CohortCard, KaplanMeier
from shoal.estimators.moments import Moments
from shoal.estimators.parameters import NotFittedError
from shoal.estimators.regressions import (
    GammaRegression,
    LinearRegression,
    LinearRegressionInBounds,
    LogisticRegression,
    MultinomialRegression,
    NegativeBinomialRegression,
    PoissonRegression,
)
from shoal.estimators.survival import PiecewiseExponentialRegression
from shoal.estimators.validating import Validation
from shoal_studies.catalogue.regression import RegressionTask
from shoal_studies.catalogue.study import Study
from shoal_studies.registry import STUDIES

__all__ = [
    "Categorical",
    "CohortCard",
    "Estimator",
    "GammaRegression",
    "KaplanMeier",
    "LinearRegression",
    "LinearRegressionInBounds",
    "LogisticRegression",
    "Moments",
    "MultinomialRegression",
    "NegativeBinomialRegression",
    "NotFittedError",
    "PiecewiseExponentialRegression",
    "PoissonRegression",
    "Validation",
]


def _derived(name: str, study: type[Study]) -> type[Estimator[Any]]:
    """Return the estimator of a study whose task says all that there is to it."""
    return type(
        name, (Estimator,), {"task_type": study, "__doc__": study.__doc__, "__module__": __name__}
    )


for _name, _study in STUDIES.items():
    _title = _name.title().replace("_", "")
    if _title not in globals() and _study is not RegressionTask:  # which has several
        globals()[_title] = _derived(_title, _study)
        __all__ += [_title]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
