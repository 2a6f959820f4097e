"""Generalised linear models in at most five rounds of everybody, in units that are measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shoal_protocol.queries import SecondMoments, WeightedRowMatrix
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import in_units
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue import regression as rules
from shoal_studies.catalogue.measurements import measured_means, measured_norm, query_of
from shoal_studies.catalogue.regression import MeasuredRegressionPosterior, RegressionTask
from shoal_studies.catalogue.study import require_due
from shoal_studies.contract import RequestedRound
from shoal_studies.regression.generalised import GeneralisedModel
from shoal_studies.regression.linear import LinearModel, noise_sd
from shoal_studies.regression.measured import Measured, records_of

# Linear regression whose predictions err little where noise is strong.
#
# Centres are measured in a ball of rows, then how long rows are about them, then spreads in a ball
# that most rows are in; so all of it costs little noise. Spreads are taken for alike, as far as
# noise hides how they differ, and rows far out and targets far off are pulled in.


SHARES: Final = (0.15, 0.03, 0.12, 0.7)
"""Shares of mu^2, or of epsilon, of the four rounds."""

_REACHES: Final = (1.7, 2.4)
"""Spreads of the target from its centre at which it is cut: under strong noise, and without any."""

_STRONG: Final = 0.02  # noise on mean products, in squared spreads
_WITHIN: Final = 0.5  # share of rows in the ball in which spreads are measured
_FARTHEST: Final = 0.98  # of a mean from the middle: some values are elsewhere
_SPREADS: Final = np.geomspace(rules.SMALLEST_SPREAD, 1.0, 60)
_TYPICAL: Final = np.geomspace(rules.SMALLEST_SPREAD, 0.7, 30)
_UNLIKE: Final = (0.15, 0.3, 0.6, 1.0)  # standard deviations of a spread's logarithm


@dataclass(frozen=True)
class PredictionModel:
    """The learner of a `RegressionTask` of the purpose "prediction"."""

    task: RegressionTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | MeasuredRegressionPosterior:
        """Return the round after these, or the posterior."""
        share = SHARES[len(sums)] if len(sums) < len(SHARES) else 0.0
        if not sums:
            return RequestedRound(query=rules.centre_query(self.task), share=share)
        centres = np.clip(measured_means(sums[0]), -_FARTHEST, _FARTHEST)
        bounds = self.task.columns
        middles = np.array([each.centre for each in bounds])
        halves = np.array([each.half_range for each in bounds])
        centres = middles + halves * centres
        columns = tuple(
            each.column().model_copy(update={"centre": centre})
            for each, centre in zip(bounds, centres.tolist(), strict=True)
        )
        if len(sums) == 1:
            return RequestedRound(query=rules.length_query(self.task, columns), share=share)
        if len(sums) == 2:
            radius = measured_norm(sums[1], _WITHIN)
            return RequestedRound(query=rules.spread_query(self.task, columns, radius), share=share)
        found = Measured(
            centres=centres,
            spreads=halves * _spreads(sums[2], records_of(sums[:3])[0]),
            looseness=np.ones(len(bounds)),
            shares=np.full(len(bounds), np.nan),
            one_bound=np.zeros(len(bounds)),
            errors=np.zeros(len(bounds)),
        )
        if len(sums) == 3:
            query = self._last_query(found, sums[2], records_of(sums)[0])
            return RequestedRound(query=query, share=share)
        return LinearModel(self.task).posterior(found, sums[3], records_of(sums))

    def _last_query(
        self, found: Measured, earlier: ReleasedSum, records: float
    ) -> WeightedRowMatrix:
        """Return the query for moments; the more noise they have, the nearer the target is cut."""
        radius = rules.squared_radius_of_predictions(self.task)
        model, (nearest, farthest) = LinearModel(self.task), _REACHES
        query = rules.moments_query(self.task, model.columns(found, nearest), radius)
        noise = noise_sd(query, earlier, part=SHARES[2] / SHARES[3]) / records
        reach = nearest + (farthest - nearest) * max(0.0, 1.0 - noise / _STRONG)
        return rules.moments_query(self.task, model.columns(found, reach), radius)


def _spreads(released: ReleasedSum, records: float) -> Floats:
    """Return each column's root mean square, in half ranges, shape (m,): geometric means.

    The logarithms of spreads are normal beforehand, about a typical one, which is unknown, as is
    how much they differ from it.
    """
    query = query_of(released, SecondMoments)
    seen = in_units(query, released.values)[:-1] / records
    error = float(released.noise_sd[0]) / query.grid**2 / records
    fits = -0.5 * ((seen[:, None] - _SPREADS**2) / error) ** 2
    likelihoods = np.exp(fits - fits.max(axis=1, keepdims=True))
    typical, unlike = np.meshgrid(np.log(_TYPICAL), _UNLIKE, indexing="ij")
    away = (np.log(_SPREADS) - typical.reshape(-1, 1)) / unlike.reshape(-1, 1)
    priors = np.exp(-0.5 * away**2)
    priors /= priors.sum(axis=1, keepdims=True)
    evidence = priors @ likelihoods.T  # of each prior for each column
    logs = np.log(np.maximum(evidence, 1e-300)).sum(axis=1)
    weights = np.exp(logs - logs.max())
    shares = weights[:, None] / np.maximum(evidence, 1e-300)
    posteriors = likelihoods * (shares.T @ priors)
    posteriors /= posteriors.sum(axis=1, keepdims=True)
    return np.asarray(np.exp(posteriors @ np.log(_SPREADS)))


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
