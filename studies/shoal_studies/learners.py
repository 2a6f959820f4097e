"""Maps each study to its learner; a new learner is added here."""

import math
from collections.abc import Callable
from typing import Any, Final, NoReturn

import numpy as np

from shoal_protocol.queries.models.numpyro_models import CompiledModel, Latent
from shoal_studies.catalogue import Task
from shoal_studies.catalogue.cells import CellStudy
from shoal_studies.catalogue.cohort_card import CohortCardTask
from shoal_studies.catalogue.kaplan_meier import KaplanMeierTask
from shoal_studies.catalogue.linear_regression import LinearRegressionTask
from shoal_studies.catalogue.moments import MomentsTask
from shoal_studies.catalogue.multinomial_regression import MultinomialRegressionTask
from shoal_studies.catalogue.normals import MultivariateNormalTask, NormalTask
from shoal_studies.catalogue.piecewise_exponential import PiecewiseExponentialTask
from shoal_studies.catalogue.quantiles import QuantilesTask
from shoal_studies.catalogue.regression import RegressionTask
from shoal_studies.catalogue.single_numbers import (
    BernoulliTask,
    NormalMeanTask,
    PoissonTask,
    VectorSumTask,
)
from shoal_studies.catalogue.validation import ValidationTask
from shoal_studies.catalogue.variational import LogisticRegressionTask, NumpyroTask
from shoal_studies.contract import Learner
from shoal_studies.families.cohort_card import CohortCard
from shoal_studies.families.counted import Bernoulli, Cells
from shoal_studies.families.kaplan_meier import KaplanMeier
from shoal_studies.families.moments import Moments
from shoal_studies.families.normals import MultivariateNormal, Normal
from shoal_studies.families.quantiles import Quantiles
from shoal_studies.families.summed import NormalMean, Poisson, VectorSums
from shoal_studies.families.validation import Validation
from shoal_studies.hazards import PiecewiseExponential
from shoal_studies.linear_regression import LinearRegression
from shoal_studies.regression import Regression
from shoal_studies.regression.multinomial import MultinomialRegression
from shoal_studies.variational import Variational

_BEND: Final = 1.0  # a scale's logarithm has it; regressions on a canonical link bend less

FindModel = Callable[[NumpyroTask], CompiledModel]
"""Returns the compiled model that a task names, or raises ValueError with what to do about it."""


def no_models(task: NumpyroTask) -> NoReturn:
    """Find no model.

    Raises:
        ValueError: always.
    """
    raise ValueError("the model that the task names is not at hand: hand over a way to find it")


def learner_for(task: Task, *, find_model: FindModel = no_models) -> Learner:
    """Return the learner that carries out `task`: that of its class, or of what studies share.

    Raises:
        ValueError: the task names a model that `find_model` does not find, or that does not fit it.
    """
    if isinstance(task, NumpyroTask):
        return _numpyro(task, find_model(task))
    return next(_LEARNERS[kind] for kind in type(task).mro() if kind in _LEARNERS)(task)


def _logistic_regression(task: LogisticRegressionTask) -> Variational:
    latents = [Latent(name=bounds.name) for bounds in task.features]
    prior_sd = np.full(len(latents), task.prior_sd)
    if task.intercept > 0.0:
        latents.insert(0, Latent(name="intercept"))
        prior_sd = np.append(2.0 * task.prior_sd / task.intercept, prior_sd)
    return Variational(
        task,
        tuple(latents),
        lambda point: -point / prior_sd**2,
        longest=math.hypot(task.intercept, math.sqrt(len(task.features))),
    )


def _numpyro(task: NumpyroTask, model: CompiledModel) -> Variational:
    if model.dimension != task.unconstrained:
        raise ValueError(
            f"the model's latents are {model.dimension} unconstrained numbers, not the task's "
            f"{task.unconstrained}: correct `unconstrained` in the task"
        )
    return Variational(task, model.latents, model.prior_gradient, bend=_BEND)


_LEARNERS: Final[dict[type, Callable[[Any], Learner]]] = {
    BernoulliTask: Bernoulli,
    CellStudy: Cells,
    CohortCardTask: CohortCard,
    KaplanMeierTask: KaplanMeier,
    ValidationTask: Validation,
    LinearRegressionTask: LinearRegression,
    LogisticRegressionTask: _logistic_regression,
    MomentsTask: Moments,
    MultinomialRegressionTask: MultinomialRegression,
    MultivariateNormalTask: MultivariateNormal,
    NormalMeanTask: NormalMean,
    NormalTask: Normal,
    PiecewiseExponentialTask: PiecewiseExponential,
    PoissonTask: Poisson,
    QuantilesTask: Quantiles,
    RegressionTask: Regression,
    VectorSumTask: VectorSums,
}
