"""Second moments of many columns, in units that an earlier round measured.

The ball is chosen as a linear regression's: where noise and what rows lose are least together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shoal_protocol.queries import SecondMomentMatrix
from shoal_protocol.queries.moments import NORM_RATIO
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue import moments as rules
from shoal_studies.catalogue.measurements import query_of
from shoal_studies.catalogue.moments import MeasuredColumn, MomentsPosterior, MomentsTask, pairs_of
from shoal_studies.catalogue.regression import REACH, first_query, length_query
from shoal_studies.contract import RequestedRound, require_due
from shoal_studies.regression.linear import noise_sd, sure_norms
from shoal_studies.regression.measured import Measured, measured, records_of

SHARES: Final = (0.16, 0.04, 0.8)
"""Shares of mu^2, or of epsilon, of the three rounds."""

_PULL: Final = 1.5
_SURELY: Final = 2.5


@dataclass(frozen=True)
class Moments:
    """The learner of one `MomentsTask`."""

    task: MomentsTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | MomentsPosterior:
        """Return the next round, or the posterior when `sums` are those of all.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        require_due(self.task, population, sums)
        if not sums:
            return RequestedRound(query=first_query(self.task), share=SHARES[0])
        found = measured(sums[0], self.task.columns, records_of(sums[:1])[0])
        columns = found.features(self.task.columns)
        if len(sums) == 1:
            return RequestedRound(query=length_query(self.task, columns), share=SHARES[1])
        if len(sums) == 2:
            query = self._last_query(found, sums[1], records_of(sums)[0])
            return RequestedRound(query=query, share=SHARES[2])
        return self._posterior(found, sums[2], records_of(sums))

    def _last_query(
        self, found: Measured, counted: ReleasedSum, records: float
    ) -> SecondMomentMatrix:
        """Return the query with the ball for which noise and what rows lose are least together."""
        counts, norms = sure_norms(counted, surely=_SURELY)
        squares = 1.0 + (REACH * norms) ** 2 / NORM_RATIO
        mean = 1.0 + len(self.task.columns)  # of squared norms, in spreads
        costs, queries = [], []
        for squared_radius in rules.squared_radii(self.task):
            columns = found.features(self.task.columns)
            queries.append(rules.matrix_query(self.task, columns, squared_radius))
            # counts below 0 count, too: else noise would look like rows far out
            lost = max(float(counts @ np.maximum(squares - squared_radius, 0.0)), 0.0)
            spread = noise_sd(queries[-1], counted, part=SHARES[1] / SHARES[2], block=1) / records
            costs.append(spread**2 + (_PULL * lost / (mean * records)) ** 2)
            if squared_radius < mean:
                costs[-1] = math.inf
        return queries[int(np.argmin(costs))]

    def _posterior(
        self, found: Measured, released: ReleasedSum, records: tuple[float, float]
    ) -> MomentsPosterior:
        query = query_of(released, SecondMomentMatrix)
        unit = (query.grid / REACH) ** 2
        columns = tuple(
            MeasuredColumn(
                name=bounds.name,
                lower=bounds.lower,
                upper=bounds.upper,
                centre=centre,
                spread=spread,
                looseness=looseness,
                is_binary=not math.isnan(share),
            )
            for bounds, centre, spread, looseness, share in zip(
                self.task.columns,
                found.centres.tolist(),
                found.spreads.tolist(),
                found.looseness.tolist(),
                found.shares.tolist(),
                strict=True,
            )
        )
        return MomentsPosterior(
            names=pairs_of(tuple(each.name for each in columns)),
            records=max(1, round(records[0])),
            variables=columns,
            sums=tuple((released.values[:-1] / unit).tolist()),
            square_sd=float(released.noise_sd[0]) / unit,
            product_sd=float(released.noise_sd[-2]) / unit,
            squared_radius=((query.radius or 0.0) * REACH) ** 2,
            record_count=records[0],
            record_count_sd=records[1],
        )
