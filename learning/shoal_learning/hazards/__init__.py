"""Piecewise exponential regression from events, hazards and scores at three points.

The first two rounds measure the columns and how features go together; each later one asks where
those before lead to.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shoal_learning.contract import RequestedRound, require_due
from shoal_learning.hazards.known import Known
from shoal_learning.hazards.likelihood import best_parameters
from shoal_learning.regression.generalised import SHARES
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.piecewise_exponential import (
    PiecewiseExponentialPosterior,
    PiecewiseExponentialTask,
)
from shoal_protocol.studies.piecewise_exponential import round_rules as rules
from shoal_protocol.studies.regression.round_rules import first_query


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
        require_due(self.task, rules.ASKED, population, sums)
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
