"""Piecewise exponential regression from events, hazards and scores at three points.

The first two rounds measure the columns and how features go together; each later one asks where
those before lead to.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_learning.contract import RequestedRound, require_due
from shoal_learning.hazards.expectations import HazardParameters, information
from shoal_learning.hazards.likelihood import (
    LEVEL_SD,
    FirstScores,
    HazardEstimate,
    HazardMeasurement,
    HazardModel,
    best_parameters,
    estimate,
)
from shoal_learning.regression.design_sample import DesignSample, sample_of_moments
from shoal_learning.regression.generalised import SHARES
from shoal_learning.regression.judging import (
    FAR,
    NOISE_OUTWEIGHS,
    NOT_ENDED,
    beyond_bounds,
    empty_features,
    far_out,
    few_complete,
    one_class,
    tangled,
    verdict,
)
from shoal_learning.regression.measured import Measured, measured, records_of
from shoal_learning.regression.robust_errors import pulled, scatter_seen
from shoal_protocol.queries import Column, HazardScoreSum, WeightedRowMatrix
from shoal_protocol.queries.sums import HazardScores, hazards_from, matrix_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.studies import piecewise_exponential as rules
from shoal_protocol.studies.piecewise_exponential import (
    PiecewiseExponentialPosterior,
    PiecewiseExponentialTask,
    names_of,
)
from shoal_protocol.studies.regression import REACH, Verdict, first_query

Floats = NDArray[np.float64]

_FEWEST: Final = 0.002  # share of records with an event, at least
_CUTS: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_DRIFT: Final = 0.6  # of a coefficient, over the root of the share of events that are left out
_PULL: Final = 0.1  # of a coefficient
_MIXED: Final = 0.35  # noise of features' moments over their least eigenvalue
_LARGE: Final = 0.4  # part of a feature in an eigenvector
_UNCERTAIN: Final = 2.0  # covariance over that of noise: how skewed features are is not measured
_OUTWEIGHED: Final = 0.3  # mean square error of predictors over their variance
_LEAST_INFORMATION: Final = 1e-3  # of one event: an interval may have none


@dataclass(frozen=True)
class Known:
    """The sums of a job so far, one or more."""

    task: PiecewiseExponentialTask
    sums: Sequence[ReleasedSum]

    @cached_property
    def records(self) -> float:
        """How many records there are."""
        return records_of(self.sums)[0]

    @cached_property
    def found(self) -> Measured:
        """Columns as the first round alone tells: the same from round to round."""
        return measured(self.sums[0], self.task.columns, records_of(self.sums[:1])[0])

    @property
    def features(self) -> tuple[Column, ...]:
        """The features in spreads."""
        return self.found.features(self.task.features)

    @property
    def level(self) -> float:
        """The share of records with an event, away from where logarithms end."""
        return min(max(float(self.found.centres[-1]), _FEWEST), 1.0 - _FEWEST)

    def model(self) -> HazardModel:
        """Return what was measured since the first round."""
        released = self.sums[1]
        query = released.query
        if not isinstance(query, WeightedRowMatrix):
            raise ValueError("the second round releases moments of weighted rows")
        matrix = matrix_from(query, released.values)
        product_sd = self._product_sd
        over = REACH * query.columns[-1].scale / query.target_limit
        sample, far = sample_of_moments(
            matrix[1:-2, 1:-2] * REACH**2,
            product_sd * REACH**2,
            shares=self.found.shares[:-2],
            looseness=self.found.looseness[:-2],
            squared_radius=rules.squared_radius(self.task),
            records=self.records,
        )
        begin, *_, end = self.task.times
        passed = max(float(self.found.centres[-2]) - begin, 1e-3 * (end - begin))
        return HazardModel(
            sample=sample,
            widths=np.diff(self.task.times),
            level=math.log(self.level / passed),
            leaving=math.log((1.0 - self.level) / passed),
            first=FirstScores(matrix[1:-2, -1] * over, product_sd * over, self.level),
            measurements=tuple(map(self._measurement, self.sums[2:])),
            prior_sd=self.task.prior_sd,
            looseness=self.found.looseness[:-2],
            far=far,
        )

    @property
    def _product_sd(self) -> float:
        """The noise in sums of products of two features, in half ranges of the second round."""
        released = self.sums[1]
        return float(released.noise_sd[-2]) / released.query.grid**2

    def _unit(self, query: HazardScoreSum) -> float:
        """Return the longest row of a query, in spreads."""
        return math.sqrt(rules.squared_radius(self.task)) * query.hazard_cut

    def _scores(self, released: ReleasedSum) -> tuple[HazardScoreSum, HazardScores, HazardScores]:
        """Return a round's query, its sums, and their noise."""
        query = released.query
        if not isinstance(query, HazardScoreSum):
            raise ValueError("rounds after the second release hazards")
        found = hazards_from(query, released.values.astype(np.float64))
        return query, found, hazards_from(query, released.noise_sd)

    def _measurement(self, released: ReleasedSum) -> HazardMeasurement:
        query, found, sds = self._scores(released)
        unit = self._unit(query)
        log_hazards, slopes = np.split(np.array(query.point), [query.intervals])
        return HazardMeasurement(
            found.events * unit,
            found.hazards * unit,
            found.scores * unit,
            float(sds.scores[0]) * unit,
            (log_hazards, slopes / REACH),
            query.hazard_cut,
        )

    def cut(self, model: HazardModel, found: HazardParameters, *, part: float) -> float:
        """Return where to cut hazards: noise, scatter and what is left out are least together.

        `part` is the share of the last round over the next one's.
        """
        last = self.sums[-1]
        spent = part if last.mechanism == "discrete_laplace" else math.sqrt(part)
        step = float(last.noise_sd[0]) / last.query.design(last.mechanism).sensitivity * spent
        whole = self._events(model, found, math.inf)
        typical = float(np.sqrt(np.mean(found.slopes**2)))
        costs = []
        for each in _CUTS:
            query = rules.score_query(
                self.task,
                self.features,
                point=(*found.log_hazards.tolist(), *found.slopes.tolist()),
                hazard_cut=each,
            )
            sd = step * query.design(last.mechanism).sensitivity / query.grid**2
            events = self._events(model, found, each)
            missed = _DRIFT * typical * math.sqrt(max(1.0 - events / whole, 0.0))
            costs.append(((sd * self._unit(query)) ** 2 + events) / events**2 + missed**2)
        return _CUTS[int(np.argmin(costs))]

    def _events(self, model: HazardModel, found: HazardParameters, cut: float) -> float:
        """Return how many events are expected of those who are followed up to `cut`."""
        curvature, _ = information(model.sample, model.widths, found, cut)
        return max(float(np.diagonal(curvature)[: model.intervals].sum()), 1e-9)

    def posterior(self, model: HazardModel) -> PiecewiseExponentialPosterior:
        """Return the estimate with noise, prior, and the records' own scatter in its covariance."""
        estimated = estimate(model)
        count = model.intervals
        query, last, sds = self._scores(self.sums[-1])
        unit = self._unit(query)
        parts = model.sample, model.widths, estimated.parameters
        curvature, expected = information(*parts, query.hazard_cut)
        pooled, own = scatter_seen(
            expected[count:, count:], last.squares * unit**2, float(sds.squares[0]) * unit**2
        )
        roots = np.sqrt(np.append(np.full(count, max(pooled, 1.0)), own))
        least = _LEAST_INFORMATION * np.eye(len(curvature))
        through = estimated.influence @ np.linalg.inv(curvature + least)
        whole, followed = (
            self._events(model, estimated.parameters, each) for each in (math.inf, query.hazard_cut)
        )
        drift = _DRIFT * math.sqrt(max(1.0 - followed / whole, 0.0))
        part = math.hypot(_PULL, drift)
        slopes = estimated.mean[count:]
        pull = np.hypot(
            pulled(model.sample, model.far, part, slopes), self._misled(model.sample, slopes)
        )
        covariance = (
            _UNCERTAIN * estimated.covariance
            + through @ (expected * np.outer(roots, roots)) @ through.T
            + np.diag(np.append(np.zeros(count), pull) ** 2)
        )
        features_first = np.r_[count : len(covariance), :count]
        spreads = self.found.spreads[:-2]
        units = np.append(1.0 / spreads, np.ones(count))
        covariance = covariance[np.ix_(features_first, features_first)]
        prior_sd = np.append(model.prior_sd * model.looseness, np.full(count, LEVEL_SD))
        return PiecewiseExponentialPosterior(
            names=names_of([each.name for each in self.task.features], self.task.times),
            target=self.task.event,
            time=self.task.time.name,
            edges=self.task.times,
            centres=tuple(self.found.centres[:-2].tolist()),
            coefficients=tuple((estimated.mean[features_first] * units).tolist()),
            covariance=tuple(map(tuple, (covariance * np.outer(units, units)).tolist())),
            prior_mean=(*[0.0] * len(spreads), *[model.level] * count),
            prior_sd=tuple((prior_sd * units).tolist()),
            scatter=pooled,
            spreads=tuple(spreads.tolist()),
            records=max(1, round(self.records)),
            verdict=self._verdict(model, estimated, np.diagonal(covariance)[: len(spreads)]),
        )

    def _mixing(self, sample: DesignSample) -> tuple[float, Floats]:
        """Return the noise in mean products of features, in spreads, and what these are, (q, q)."""
        products = np.cov(sample.rows[:, 1:].T).reshape(2 * [sample.rows.shape[1] - 1])
        return self._product_sd * REACH**2 / self.records, products

    def _misled(self, sample: DesignSample, slopes: Floats) -> Floats:
        """Return by how much noise E in the products G may mislead `slopes` b, shape (q,).

        A step from no slopes ends at (G + E)^-1 G b, off by G^-1 E b.
        """
        sd, products = self._mixing(sample)
        return np.asarray(
            sd * np.linalg.norm(slopes) * np.linalg.norm(np.linalg.inv(products), axis=1)
        )

    def _verdict(self, model: HazardModel, estimated: HazardEstimate, variances: Floats) -> Verdict:
        names = [each.name for each in self.task.features]
        complete = (self.records, self.sums[-1].cohort_size)
        reasons = few_complete(complete) or beyond_bounds(self.task.features, self.found)
        reasons += far_out(self.task.features, model.far, self.found)
        if self.found.one_bound[-1] < 0.0:
            return one_class(
                f"hardly any record has the event {self.task.event}: is it coded 1, or is its "
                "value named?"
            )
        x, slopes = model.sample.rows[:, 1:], estimated.parameters.slopes
        sd, products = self._mixing(model.sample)
        least, vectors = np.linalg.eigh(products)
        if len(names) > 1 and sd > _MIXED * least[0]:
            mixed = [
                name for name, part in zip(names, vectors[:, 0], strict=True) if abs(part) > _LARGE
            ]
            reasons.append(f"noise hides how {', '.join(mixed[:5])} go together")
        error = float(np.mean(np.sum((x @ estimated.expected) * x, axis=1)))
        if error > _OUTWEIGHED * float((x @ slopes).var()):
            reasons.append(NOISE_OUTWEIGHS)
        _, asked = model.measurements[-1].point
        if float(np.sqrt(np.mean((x @ (slopes - asked)) ** 2))) > FAR:
            reasons.append(NOT_ENDED)
        sds = model.prior_sd * model.looseness
        empty = empty_features(self.task.features, self.found)
        apart = tangled(names, products, sd).without(names, empty)
        return verdict(reasons, names, variances, sds, model.looseness, empty, apart)


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
