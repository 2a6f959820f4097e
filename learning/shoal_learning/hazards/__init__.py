"""Piecewise exponential regression from events, hazards and scores at three points.

The first two rounds measure the columns and how features go together; each later one asks where
those before lead to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shoal_learning.contract import RequestedRound
from shoal_learning.hazards.known import Known
from shoal_learning.hazards.likelihood import best_parameters
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.piecewise_exponential import (
    PiecewiseExponentialPosterior,
    PiecewiseExponentialTask,
)
from shoal_protocol.studies.piecewise_exponential import round_rules as rules
from shoal_protocol.studies.regression.round_rules import first_query

SHARES: Final = (0.1, 0.2, 0.2, 0.2, 0.3)
"""Shares of mu^2, or of epsilon, of the five rounds."""


@dataclass(frozen=True)
class PiecewiseExponential:
    """The learner of one `PiecewiseExponentialTask`."""

    task: PiecewiseExponentialTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | PiecewiseExponentialPosterior:
        """Return the next round, or the posterior when `sums` suffice.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        if population < 1:
            raise ValueError("the population must be positive")
        due = rules.ASKED[: len(sums)]
        if len(due) < len(sums) or any(
            released.query.name != name
            or released.query.records_per_client != self.task.records_per_client
            or [each.name for each in released.query.columns]
            != [each.name for each in self.task.columns]
            for released, name in zip(sums, due, strict=True)
        ):
            raise ValueError("the sums are not those of this task's rounds, in order")
        if not sums:
            return RequestedRound(query=first_query(self.task), share=SHARES[0])
        known = Known(self.task, sums)
        if len(sums) == 1:
            query = rules.moments_query(self.task, known.features, known.level)
            return RequestedRound(query=query, share=SHARES[1])
        model = known.model()
        if len(sums) == len(SHARES):
            return known.posterior(model)
        share = SHARES[len(sums)]
        found = best_parameters(model)
        score = rules.score_query(
            self.task,
            known.features,
            point=(*found.log_hazards.tolist(), *found.slopes.tolist()),
            hazard_cut=known.cut(model, found, part=SHARES[len(sums) - 1] / share),
        )
        return RequestedRound(query=score, share=share)
