"""Generalised linear models in at most five rounds of everybody, in units that are measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from shoal_learning.contract import RequestedRound, require_due
from shoal_learning.regression.generalised import GeneralisedModel
from shoal_learning.regression.linear import LinearModel
from shoal_learning.regression.prediction import PredictionModel
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.regression import MeasuredRegressionPosterior, RegressionTask


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
        require_due(self.task, self.task.asked(), population, sums)
        return self._model().next(population, sums)

    def _model(self) -> LinearModel | PredictionModel | GeneralisedModel:
        if self.task.family != "normal":
            return GeneralisedModel(self.task)
        if self.task.purpose == "prediction":
            return PredictionModel(self.task)
        return LinearModel(self.task)
