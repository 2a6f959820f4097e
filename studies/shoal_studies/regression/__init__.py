"""Generalised linear models in at most five rounds of everybody, in units that are measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.regression import MeasuredRegressionPosterior, RegressionTask
from shoal_studies.catalogue.study import require_due
from shoal_studies.contract import RequestedRound
from shoal_studies.regression.generalised import GeneralisedModel
from shoal_studies.regression.linear import LinearModel
from shoal_studies.regression.prediction import PredictionModel


@dataclass(frozen=True)
class Regression:
    """The learner of one `RegressionTask`."""

    task: RegressionTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | MeasuredRegressionPosterior:
        """Return the next round, or the posterior when `sums` suffice.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        require_due(self.task, population, sums)
        if self.task.family != "normal":
            return GeneralisedModel(self.task).next(population, sums)
        if self.task.purpose == "prediction":
            return PredictionModel(self.task).next(population, sums)
        return LinearModel(self.task).next(population, sums)
