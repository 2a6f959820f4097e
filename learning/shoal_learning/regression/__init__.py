"""Generalised linear models in at most five rounds of everybody, in units that are measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from shoal_learning.contract import RequestedRound
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
        if population < 1:
            raise ValueError("the population must be positive")
        due = self.task.asked()[: len(sums)]
        if len(due) < len(sums) or any(
            released.query.name != name
            or released.query.records_per_client != self.task.records_per_client
            or [each.name for each in released.query.columns]
            != [each.name for each in self.task.columns]
            for released, name in zip(sums, due, strict=True)
        ):
            raise ValueError("the sums are not those of this task's rounds, in order")
        return self._model().next(population, sums)

    def _model(self) -> LinearModel | PredictionModel | GeneralisedModel:
        if self.task.family != "normal":
            return GeneralisedModel(self.task)
        if self.task.purpose == "prediction":
            return PredictionModel(self.task)
        return LinearModel(self.task)
