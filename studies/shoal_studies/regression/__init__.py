"""Regressions in five rounds of everybody, or four to predict, in units that are measured."""

from shoal_studies.catalogue.regression import RegressionTask
from shoal_studies.contract import Learner
from shoal_studies.regression.engine import ScoredRegression, TargetJob
from shoal_studies.regression.prediction import PredictionModel


def regression_learner(task: RegressionTask) -> Learner:
    """Return the learner of a task, by its purpose."""
    if task.purpose == "prediction":
        return PredictionModel(task)
    return ScoredRegression(task, TargetJob)
