"""Regressions in five rounds of everybody, or four to predict, in units that are measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.regression import MeasuredRegressionPosterior, RegressionTask
from shoal_studies.catalogue.study import require_due
from shoal_studies.contract import RequestedRound
from shoal_studies.regression.engine import ScoredRegression
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
        if self.task.purpose == "prediction":
            return PredictionModel(self.task).next(population, sums)
        return ScoredRegression(self.task).next(population, sums)
