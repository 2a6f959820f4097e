"""Maps each study to its learner; a new learner is added here."""

import math
from collections.abc import Callable
from typing import Any, Final, NoReturn

import numpy as np

from shoal_learning.contract import Learner
from shoal_learning.families.cohort_card import CohortCard
from shoal_learning.families.counted import Bernoulli, Cells
from shoal_learning.families.kaplan_meier import KaplanMeier
from shoal_learning.families.moments import Moments
from shoal_learning.families.normals import MultivariateNormal, Normal
from shoal_learning.families.quantiles import Quantiles
from shoal_learning.families.summed import NormalMean, Poisson, VectorSums
from shoal_learning.families.validation import Validation
from shoal_learning.hazards import PiecewiseExponential
from shoal_learning.linear_regression import LinearRegression
from shoal_learning.noise_aware import Inferred
from shoal_learning.regression import Regression
from shoal_learning.regression.multinomial import MultinomialRegression
from shoal_learning.variational import Variational
from shoal_protocol.posteriors.variational import packed
from shoal_protocol.queries.models.numpyro_models import CompiledModel
from shoal_protocol.studies import Task
from shoal_protocol.studies.cells import CellStudy
from shoal_protocol.studies.cohort_card import CohortCardTask
from shoal_protocol.studies.kaplan_meier import KaplanMeierTask
from shoal_protocol.studies.linear_regression import LinearRegressionTask
from shoal_protocol.studies.moments import MomentsTask
from shoal_protocol.studies.multinomial_regression import MultinomialRegressionTask
from shoal_protocol.studies.normals import MultivariateNormalTask, NormalTask
from shoal_protocol.studies.piecewise_exponential import PiecewiseExponentialTask
from shoal_protocol.studies.quantiles import QuantilesTask
from shoal_protocol.studies.regression import RegressionTask
from shoal_protocol.studies.single_numbers import (
    BernoulliTask,
    NormalMeanTask,
    PoissonTask,
    VectorSumTask,
)
from shoal_protocol.studies.validation import ValidationTask
from shoal_protocol.studies.variational import (
    LogisticRegressionPosterior,
    LogisticRegressionTask,
    NumpyroPosterior,
    NumpyroTask,
    names_of,
)

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
    size = task.model.dimension(len(task.columns))
    prior_sd = np.full(size, task.prior_sd)
    if task.intercept > 0.0:
        prior_sd[0] = 2.0 * task.prior_sd / task.intercept

    def posterior(inferred: Inferred, records: int) -> LogisticRegressionPosterior:
        return LogisticRegressionPosterior(
            names=("intercept", *(bounds.name for bounds in task.features)),
            target=task.target.name,
            feature_columns=tuple(bounds.column() for bounds in task.features),
            intercept=task.intercept,
            records=records,
            **_normal(inferred),
        )

    longest = math.hypot(task.intercept, math.sqrt(len(task.features)))
    return Variational(
        task,
        size,
        lambda point: -point / prior_sd**2,
        posterior,
        longest=lambda point: longest,
    )


def _normal(found: Inferred) -> dict[str, Any]:
    """Return the fields of a posterior that say what its normal distribution is."""
    factor = None if found.factor is None else packed(found.factor)
    return {
        "location": tuple(found.location.tolist()),
        "scale": tuple(found.scale.tolist()),
        "correlation": factor,
        "convergence": found.convergence,
        "prior_sd": None if found.prior_sd is None else tuple(found.prior_sd.tolist()),
    }


def _numpyro(task: NumpyroTask, model: CompiledModel) -> Variational:
    if model.dimension != task.unconstrained:
        raise ValueError(
            f"the model's latents are {model.dimension} unconstrained numbers, not the task's "
            f"{task.unconstrained}: correct `unconstrained` in the task"
        )

    def posterior(found: Inferred, records: int) -> NumpyroPosterior:
        return NumpyroPosterior(
            names=names_of(model.latents),
            entry_point=task.entry_point,
            digest=task.digest,
            columns=tuple(bounds.name for bounds in task.columns),
            latents=model.latents,
            records=records,
            **_normal(found),
        )

    return Variational(task, model.dimension, model.prior_gradient, posterior, bend=_BEND)


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
