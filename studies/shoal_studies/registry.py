"""All studies that an analyst may ask for, collected from the modules of `catalogue`."""

from collections.abc import Callable
from functools import partial, reduce
from importlib import import_module
from operator import or_
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Field

from shoal_protocol.queries import Column
from shoal_protocol.queries.models import InstalledModel
from shoal_protocol.queries.models.numpyro_models import CompiledModel
from shoal_studies import catalogue
from shoal_studies.catalogue.multinomial_regression import MultinomialRegressionTask
from shoal_studies.catalogue.piecewise_exponential import PiecewiseExponentialTask
from shoal_studies.catalogue.regression import RegressionTask
from shoal_studies.catalogue.study import Study
from shoal_studies.catalogue.variational import NumpyroTask
from shoal_studies.contract import Learner
from shoal_studies.hazards import HazardJob
from shoal_studies.posteriors.base import BasePosterior
from shoal_studies.regression.engine import ScoredRegression, TargetJob
from shoal_studies.regression.multinomial import ClassJob
from shoal_studies.regression.prediction import PredictionModel


def _defined_here() -> tuple[type[Study], ...]:
    """Return the studies of all modules of `catalogue`, in the order of the modules' names."""
    modules = [
        import_module(f"{catalogue.__name__}.{each.name}")
        for each in iter_modules(catalogue.__path__)
    ]
    found = [
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Study) and each.__module__ == module.__name__
    ]
    return tuple(each for each in found if not each.model_fields["name"].is_required())


STUDIES: Final = {str(each.model_fields["name"].default): each for each in _defined_here()}
"""Every study's task, by its name."""

if TYPE_CHECKING:
    Task = Study
    Posterior = BasePosterior
    TaskName = str
else:
    Task = Annotated[reduce(or_, STUDIES.values()), Field(discriminator="name")]
    """Every task that a job may name."""
    Posterior = Annotated[
        reduce(or_, (each for study in STUDIES.values() for each in study.posteriors)),
        Field(discriminator="name"),
    ]
    """Every posterior that a job may end with."""
    TaskName = Literal[tuple(STUDIES)]
    """The names of all studies."""

_APART: Final[dict[type[Study], Callable[[Any], Learner]]] = {
    MultinomialRegressionTask: partial(ScoredRegression, job=ClassJob),
    PiecewiseExponentialTask: partial(ScoredRegression, job=HazardJob),
    RegressionTask: lambda task: (
        PredictionModel(task)
        if task.purpose == "prediction"
        else ScoredRegression(task, job=TargetJob)
    ),
}
"""Regressions, whose learners are not in their study's module."""

FindModel = Callable[[InstalledModel, tuple[Column, ...]], CompiledModel]
"""Returns a model, compiled for records of these columns. Raises ValueError with what to do."""


def learner_for(task: Task, *, find_model: FindModel | None = None) -> Learner:
    """Return the learner that carries out `task`.

    Raises:
        ValueError: the task names a model that `find_model` does not find, or that does not fit it.
    """
    if isinstance(task, NumpyroTask) and find_model is not None:
        return task.learner(find_model(task.model, task.model_columns))
    apart = next((_APART[kind] for kind in type(task).mro() if kind in _APART), None)
    return task.learner() if apart is None else apart(task)
