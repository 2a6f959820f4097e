"""Sums and means of columns or of a vector's entries, from one noisy sum."""

import numpy as np

from shoal_learning.families.densities import summarise
from shoal_learning.families.noise import SummedNoise
from shoal_learning.families.round import OneRound
from shoal_protocol.posteriors.draws import encoded
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.measurements import record_law
from shoal_protocol.studies.vector_sum import VectorSumPosterior, VectorSumTask


class VectorSums(OneRound[VectorSumTask, VectorSumPosterior]):
    """The learner of one `VectorSumTask`."""

    def posterior(self, released: ReleasedSum) -> VectorSumPosterior:
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
