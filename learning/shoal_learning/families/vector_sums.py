"""Sums and means of columns or of a vector's entries, from one noisy sum."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal_learning.contract import RequestedRound
from shoal_learning.families.densities import summarise
from shoal_learning.families.noise import SummedNoise
from shoal_learning.families.round import ask_or_take
from shoal_protocol.posteriors.draws import encoded
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.measurements import record_law
from shoal_protocol.studies.vector_sum import VectorSumPosterior, VectorSumTask


@dataclass(frozen=True)
class VectorSums:
    """The learner of one `VectorSumTask`."""

    task: VectorSumTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | VectorSumPosterior:
        """Return the round, or the posterior when `sums` hold it.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's round.
        """
        released = ask_or_take(self.task, population, sums)
        if isinstance(released, RequestedRound):
            return released
        query = self.task.query()
        noise = SummedNoise(mechanism=released.mechanism, sd=1.0, shape=released.surplus)
        law = summarise(noise.log_density, -noise.reach, noise.reach, np.asarray)
        records, sd = record_law(released)
        return VectorSumPosterior(
            names=query.column_names,
            records=max(1, round(records)),
            bounds=self.task.columns,
            sums=encoded(released.values[:-1] / query.grid**2),
            noise_sd=float(released.noise_sd[0]) / query.grid**2,
            quantiles=tuple(law.quantiles.tolist()),
            record_count=max(1.0, records),
            record_count_sd=sd,
        )
