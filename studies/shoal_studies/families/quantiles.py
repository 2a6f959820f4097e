"""Quantiles by rounds of counts, each closer to where they may be."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.measurements import noisy_count
from shoal_studies.catalogue.quantiles import (
    Below,
    QuantilesPosterior,
    QuantilesTask,
    VariableQuantiles,
    laws,
)
from shoal_studies.contract import RequestedRound
from shoal_studies.families.one_round import tells_quantiles
from shoal_studies.posteriors.base import LEVEL
from shoal_studies.posteriors.forms import Known, KnownQuantile, reach_of, tails_of


@dataclass(frozen=True)
class Quantiles:
    """The learner of one `QuantilesTask`."""

    task: QuantilesTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | QuantilesPosterior:
        """Return the next round, or the posterior when `sums` are those of all.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        if population < 1 or len(sums) > self.task.rounds:
            raise ValueError("the population must be positive, and sums not more than rounds")
        if len(sums) < self.task.rounds:
            return RequestedRound(query=self.task.query(sums), share=1.0 / self.task.rounds)
        counts = [noisy_count(released) for released in sums]
        weights = [sd**-2 for _, sd in counts]
        total = sum(seen * weight for (seen, _), weight in zip(counts, weights, strict=True))
        tails = tails_of(sums[-1].mechanism)
        reach = reach_of(LEVEL, tails)
        return QuantilesPosterior.of(
            variables=tuple(
                self._variable(bounds, law, reach)
                for bounds, law in zip(self.task.variables, laws(sums), strict=True)
            ),
            total=Known(mean=total / sum(weights), sd=sum(weights) ** -0.5),
            records=max(1, round(total / sum(weights))),
            tails=tails,
            columns=tuple(each.name for each in self.task.columns),
        )

    def _variable(self, bounds: ColumnBounds, law: Below, reach: float) -> VariableQuantiles:
        present = Known(mean=float(law.mean[-1]), sd=math.sqrt(float(law.covariance[-1, -1])))
        is_told = tells_quantiles(present, reach=reach, smallest=self.task.smallest_cell)
        return VariableQuantiles(
            name=bounds.name,
            bounds=(bounds.lower, bounds.upper),
            present=present,
            quantiles=tuple(
                KnownQuantile(level=level, points=law.points(level))
                for level in self.task.levels
                if is_told
            ),
        )
