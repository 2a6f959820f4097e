"""Piecewise exponential regression from events, hazards and scores at three points.

The first two rounds measure the columns and their moments; the point of each later one follows from
the rounds before it.

Records leave by events, with hazards exp(a_j + x'b) in interval j, and without one at rates g_j
that do not depend on x. So how many are at risk when, of which features, follows from a, g and b.

Each round is a measurement with known noise. Its expectation follows from the parameters and from a
public sample of rows, with an error that grows with how far the point was from them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shoal_protocol.queries import Column, HazardScoreSum, WeightedRowMatrix
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import HazardScores, hazards_from, matrix_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue import piecewise_exponential as rules
from shoal_studies.catalogue.measurements import query_of
from shoal_studies.catalogue.piecewise_exponential import (
    PiecewiseExponentialPosterior,
    PiecewiseExponentialTask,
    names_of,
)
from shoal_studies.catalogue.regression import REACH, Verdict, first_query
from shoal_studies.catalogue.study import require_due
from shoal_studies.contract import RequestedRound
from shoal_studies.regression.constants import SHARES
from shoal_studies.regression.design_sample import (
    DesignSample,
    pulled,
    sample_of_moments,
)
from shoal_studies.regression.judging import (
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
from shoal_studies.regression.measured import JobSums
from shoal_studies.regression.score_likelihood import (
    MODEL_ERROR,
    Estimate,
    MeasuredModel,
    Measurement,
    best_estimate,
    estimate,
)
from shoal_studies.regression.scores import scatter_seen

_LARGEST: Final = 30.0
_SMALL: Final = 1e-4  # of a rate times a time: below it exponentials are but linear


@dataclass(frozen=True)
class HazardParameters:
    """Log hazards a and log rates of leaving g, shapes (J,), and coefficients b, shape (q,)."""

    log_hazards: Floats
    log_leaving: Floats
    slopes: Floats

    @classmethod
    def of(cls, whole: Floats, intervals: int) -> "HazardParameters":
        """Take them from one vector, shape (2 J + q,)."""
        return cls(*np.split(whole, [intervals, 2 * intervals]))

    def rates(self, rows: Floats) -> Floats:
        """Return the hazards exp(a_j + x'b) at `rows`, (s, 1 + q), the constant first: (s, J)."""
        logs = np.add.outer(rows[:, 1:] @ self.slopes, self.log_hazards)
        return np.asarray(np.exp(np.clip(logs, -_LARGEST, _LARGEST)))


def at_risk(parameters: HazardParameters, rows: Floats, followed: Floats) -> tuple[Floats, Floats]:
    """Return for how long each of `rows`, (s, 1 + q), is expected to be at risk, shape (s, J).

    Each is `followed` in an interval so long at most, (s, J). Then the derivative of its logarithm
    by the rate of leaving in the same interval, (s, J); by that in an earlier one it is minus how
    long a row was followed there.
    """
    leaving = np.exp(np.clip(parameters.log_leaving, -_LARGEST, _LARGEST))
    passed = (parameters.rates(rows) + leaving) * followed
    before = passed @ _earlier(passed.shape[1])
    small = passed < _SMALL
    safe = np.where(small, 1.0, passed)
    decay = np.exp(-safe)
    share = np.where(small, 1.0 - passed / 2.0, (1.0 - decay) / safe)
    own = np.where(small, -0.5, decay / (1.0 - decay) - 1.0 / safe)
    return np.exp(-before) * followed * share, own * followed


def _earlier(count: int) -> Floats:
    """Return what adds up the intervals before each, from the right: shape (count, count)."""
    return np.triu(np.ones((count, count)), 1)


def time_followed(rates: Floats, widths: Floats, cut: float) -> Floats:
    """Return how long of each interval rows with these hazards are followed up to `cut`, (s, J)."""
    passed = rates * widths
    before = passed @ _earlier(len(widths))
    return np.asarray(np.clip((cut - before) / rates, 0.0, widths))


@dataclass(frozen=True)
class Expected:
    """Expected events and hazards, (J,), and scores, (q,), and their derivatives, (., 2 J + q)."""

    events: Floats
    hazards: Floats
    scores: Floats
    by_events: Floats
    by_hazards: Floats
    by_scores: Floats


def expected_sums(
    sample: DesignSample,
    widths: Floats,
    parameters: HazardParameters,
    asked: tuple[Floats, Floats],
    cut: float,
) -> Expected:
    """Return the sums over records that a round asking at `asked`, (J,) and (q,), is to release.

    `widths`, shape (J,), are of the intervals.
    """
    rows, x = sample.rows, sample.rows[:, 1:]
    weights = (sample.weights * sample.sizes)[:, None]
    truth = parameters.rates(rows)
    there = replace(parameters, log_hazards=asked[0], slopes=asked[1]).rates(rows)
    leaving = np.exp(np.clip(parameters.log_leaving, -_LARGEST, _LARGEST))
    followed = time_followed(there, widths, cut)
    exposure, own = at_risk(parameters, rows, followed)
    # each row's own: derivatives by a_k and g_k are products with these two
    moves = followed * truth, followed * leaving

    def summed(values: Floats, *, directly: float) -> tuple[Floats, Floats]:
        """Return sums over rows, (J,), and derivatives; of events a_j is `directly` in it, too."""
        weighted = values * weights
        total = weighted.sum(axis=0)
        by_rates = [
            np.diag((weighted * own * rate).sum(axis=0)) - np.tril(weighted.T @ move, -1)
            for rate, move in zip((truth, leaving), moves, strict=True)
        ]
        by_rates[0] = by_rates[0] + directly * np.diag(total)
        along = directly + own * truth - moves[0] @ _earlier(len(widths))
        return total, np.hstack([*by_rates, (weighted * along).T @ x])

    events, hazards = truth * exposure, there * exposure
    of_events, by_events = summed(events, directly=1.0)
    of_hazards, by_hazards = summed(hazards, directly=0.0)
    residuals = (events - hazards) * weights
    by_rate = residuals * own - (residuals @ _earlier(len(widths)).T) * followed
    by_a, by_g = events * weights + by_rate * truth, by_rate * leaving
    by_b = x * by_a.sum(axis=1)[:, None]
    by_scores = np.hstack([x.T @ by_a, x.T @ by_g, by_b.T @ x])
    scores = residuals.sum(axis=1) @ x
    return Expected(of_events, of_hazards, scores, by_events, by_hazards, by_scores)


def information(
    sample: DesignSample, widths: Floats, parameters: HazardParameters, cut: float
) -> tuple[Floats, Floats]:
    """Return curvature and scatter of scores at the parameters, (J + q, J + q): a, then b.

    Both are sums over records of an event's probability times z z', with z its interval and
    features (Andersen and Gill 1982); the scatter has weights squared.
    """
    rows, x = sample.rows, sample.rows[:, 1:]
    truth = parameters.rates(rows)
    exposure, _ = at_risk(parameters, rows, time_followed(truth, widths, cut))
    events = truth * exposure

    def summed(weights: Floats) -> Floats:
        weighted = events * (weights * sample.sizes)[:, None]
        cross = weighted.T @ x
        own = (x * weighted.sum(axis=1)[:, None]).T @ x
        return np.block([[np.diag(weighted.sum(axis=0)), cross], [cross.T, own]])

    return summed(sample.weights), summed(sample.weights**2)


_COMPOSITION_ERROR: Final = 0.05  # of how many are at risk: the sample's leave as the model says
_SHARED_SDS: Final = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03)  # the widest is found soonest
LEVEL_SD, _STEP_SD = 1.5, 0.7  # of log hazards: of all, and from one interval to the next
_LEAVING_SD, _LEAVING_STEP_SD = 2.0, 1.0


@dataclass(frozen=True)
class HazardMeasurement:
    """Sums of events and hazards, (J,), and of scores, (q,), with noise of `sd` each.

    They were asked at log hazards and coefficients `point`, in spreads, up to a hazard of `cut`.
    """

    events: Floats
    hazards: Floats
    scores: Floats
    sd: float
    point: tuple[Floats, Floats]
    cut: float


@dataclass(frozen=True, kw_only=True)
class HazardModel(MeasuredModel):
    """What rounds measured: parameters are log hazards, logarithms of leaving, and coefficients.

    `widths`, shape (J,), are of the intervals, and `first` has the sums of features over events.
    """

    iterations = 40
    tolerance = 1e-3
    norm = math.inf

    widths: Floats
    first: Measurement
    measurements: tuple[HazardMeasurement, ...]

    @property
    def intervals(self) -> int:
        return len(self.widths)

    @property
    def shared_sds(self) -> tuple[float, ...]:
        return _SHARED_SDS

    def precision(self, shared_sd: float | None = None) -> Floats:
        """Return the prior's precision, (2 J + q, 2 J + q): slopes share a deviation, or none.

        Logarithms of hazards are a random walk over the intervals.
        """
        slopes, count = self.slope_sds(shared_sd), self.intervals
        whole = np.zeros((2 * count + len(slopes),) * 2)
        whole[:count, :count] = _walk(count, LEVEL_SD, _STEP_SD)
        whole[count : 2 * count, count : 2 * count] = _walk(count, _LEAVING_SD, _LEAVING_STEP_SD)
        whole[2 * count :, 2 * count :] = np.diag(slopes**-2.0)
        return whole

    def gaps(self, point: Floats) -> Iterator[tuple[Floats, Floats, Floats]]:
        parameters = HazardParameters.of(point, self.intervals)
        for each in self.measurements:
            found = expected_sums(self.sample, self.widths, parameters, each.point, each.cut)
            missed = found.events - found.hazards
            gap = each.events - each.hazards - missed
            error = 2.0 * each.sd**2 + MODEL_ERROR**2 * float(np.mean(missed**2))
            yield gap, found.by_events - found.by_hazards, np.full(len(gap), error)
            both = found.events + found.hazards
            errors = 2.0 * each.sd**2 + (_COMPOSITION_ERROR * both) ** 2
            yield each.events + each.hazards - both, found.by_events + found.by_hazards, errors
            error = each.sd**2 + MODEL_ERROR**2 * float(np.mean(found.scores**2))
            yield each.scores - found.scores, found.by_scores, np.full(len(found.scores), error)
        if not self.measurements:
            yield self._first_gap(parameters)

    def _first_gap(self, parameters: HazardParameters) -> tuple[Floats, Floats, Floats]:
        """Return the same of the first scores: events of all, wherever hazards are none."""
        asked = np.full(self.intervals, -30.0), np.zeros(len(parameters.slopes))
        sample = replace(self.sample, weights=self.sample.moment_weights)
        found = expected_sums(sample, self.widths, parameters, asked, 1.0)
        features = sample.total(sample.weights)[1:]
        scores = found.scores - self.first.level * features
        error = self.first.sd**2 + MODEL_ERROR**2 * float(np.mean(scores**2))
        return self.first.scores - scores, found.by_scores, np.full(len(scores), error)


def _walk(count: int, level_sd: float, step_sd: float) -> Floats:
    """Return the precision of a random walk whose mean has a prior of its own, (count, count)."""
    steps = np.diff(np.eye(count), axis=0)
    return np.asarray(
        steps.T @ steps / step_sd**2 + np.full((count,) * 2, (count * level_sd) ** -2.0)
    )


_FEWEST: Final = 0.002  # share of records with an event, at least
_CUTS: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_DRIFT: Final = 0.6  # of a coefficient, over the root of the share of events that are left out
_PULL: Final = 0.1  # of a coefficient
_MIXED: Final = 0.35  # noise of features' moments over their least eigenvalue
_LARGE: Final = 0.4  # part of a feature in an eigenvector
_UNCERTAIN: Final = 2.0  # covariance over that of noise: how skewed features are is not measured
_OUTWEIGHED: Final = 0.3  # mean square error of predictors over their variance
_LEAST_INFORMATION: Final = 1e-3  # of one event: an interval may have none


class _JobSums(JobSums[PiecewiseExponentialTask]):
    """Everything that follows from the sums released so far, one or more."""

    @property
    def features(self) -> tuple[Column, ...]:
        """The features in spreads."""
        return self.all_columns.features(self.task.features)

    @property
    def level(self) -> float:
        """The share of records with an event, away from where logarithms end."""
        return min(max(float(self.all_columns.centres[-1]), _FEWEST), 1.0 - _FEWEST)

    def model(self) -> HazardModel:
        """Return what was measured since the first round."""
        released = self.sums[1]
        query = query_of(released, WeightedRowMatrix)
        matrix = matrix_from(query, released.values)
        product_sd = self._product_sd
        over = REACH * query.columns[-1].scale / query.target_limit
        sample, far = sample_of_moments(
            matrix[1:-2, 1:-2] * REACH**2,
            product_sd * REACH**2,
            shares=self.all_columns.shares[:-2],
            looseness=self.all_columns.looseness[:-2],
            squared_radius=rules.squared_radius(self.task),
            records=self.records[0],
        )
        begin, *_, end = self.task.times
        passed = max(float(self.all_columns.centres[-2]) - begin, 1e-3 * (end - begin))
        logs = math.log(self.level / passed), math.log((1.0 - self.level) / passed)
        counts = [len(self.task.times) - 1] * 2 + [len(self.task.features)]
        return HazardModel(
            sample=sample,
            widths=np.diff(self.task.times),
            centre=np.repeat([*logs, 0.0], counts),
            first=Measurement(matrix[1:-2, -1] * over, product_sd * over, level=self.level),
            measurements=tuple(map(self._measurement, self.sums[2:])),
            prior_sd=self.task.prior_sd,
            looseness=self.all_columns.looseness[:-2],
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
        query = query_of(released, HazardScoreSum)
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
        estimated, count = estimate(model), model.intervals
        parameters = HazardParameters.of(estimated.mean, count)
        kept = np.r_[:count, 2 * count : len(estimated.mean)]  # leaving is nobody's question
        query, last, sds = self._scores(self.sums[-1])
        unit = self._unit(query)
        parts = model.sample, model.widths, parameters
        curvature, expected = information(*parts, query.hazard_cut)
        pooled, pooled_sd, own = scatter_seen(
            expected[count:, count:], last.squares * unit**2, float(sds.squares[0]) * unit**2
        )
        roots = np.sqrt(np.append(np.full(count, max(pooled, 1.0)), own))
        least = _LEAST_INFORMATION * np.eye(len(curvature))
        through = estimated.influence[np.ix_(kept, kept)] @ np.linalg.inv(curvature + least)
        whole, followed = (
            self._events(model, parameters, each) for each in (math.inf, query.hazard_cut)
        )
        drift = _DRIFT * math.sqrt(max(1.0 - followed / whole, 0.0))
        part = math.hypot(_PULL, drift)
        pull = np.hypot(
            pulled(model.sample, model.far, part, parameters.slopes),
            self._misled(model.sample, parameters.slopes),
        )
        covariance = (
            _UNCERTAIN * estimated.covariance[np.ix_(kept, kept)]
            + through @ (expected * np.outer(roots, roots)) @ through.T
            + np.diag(np.append(np.zeros(count), pull) ** 2)
        )
        features_first = np.r_[count : len(covariance), :count]
        spreads = self.all_columns.spreads[:-2]
        units = np.append(1.0 / spreads, np.ones(count))
        covariance = covariance[np.ix_(features_first, features_first)]
        prior_sd = np.append(model.prior_sd * model.looseness, np.full(count, LEVEL_SD))
        return PiecewiseExponentialPosterior(
            names=names_of([each.name for each in self.task.features], self.task.times),
            target=self.task.event,
            time=self.task.time.name,
            edges=self.task.times,
            centres=tuple(self.all_columns.centres[:-2].tolist()),
            coefficients=tuple((estimated.mean[kept][features_first] * units).tolist()),
            covariance=tuple(map(tuple, (covariance * np.outer(units, units)).tolist())),
            prior_mean=(*[0.0] * len(spreads), *model.centre[:count].tolist()),
            prior_sd=tuple((prior_sd * units).tolist()),
            scatter=pooled,
            scatter_sd=pooled_sd,
            spreads=tuple(spreads.tolist()),
            records=max(1, round(self.records[0])),
            verdict=self._verdict(model, estimated, np.diagonal(covariance)[: len(spreads)]),
        )

    def _mixing(self, sample: DesignSample) -> tuple[float, Floats]:
        """Return the noise in mean products of features, in spreads, and what these are, (q, q)."""
        products = np.cov(sample.rows[:, 1:].T).reshape(2 * [sample.rows.shape[1] - 1])
        return self._product_sd * REACH**2 / self.records[0], products

    def _misled(self, sample: DesignSample, slopes: Floats) -> Floats:
        """Return by how much noise E in the products G may mislead `slopes` b, shape (q,).

        A step from no slopes ends at (G + E)^-1 G b, off by G^-1 E b.
        """
        sd, products = self._mixing(sample)
        return np.asarray(
            sd * np.linalg.norm(slopes) * np.linalg.norm(np.linalg.inv(products), axis=1)
        )

    def _verdict(self, model: HazardModel, estimated: Estimate, variances: Floats) -> Verdict:
        names = [each.name for each in self.task.features]
        complete = (self.records[0], self.sums[-1].cohort_size)
        reasons = few_complete(complete) or beyond_bounds(self.task.features, self.all_columns)
        reasons += far_out(self.task.features, model.far, self.all_columns)
        if self.all_columns.one_bound[-1] < 0.0:
            return one_class(
                f"hardly any record has the event {self.task.event}: is it coded 1, or is its "
                "value named?"
            )
        x, slopes = model.sample.rows[:, 1:], estimated.mean[-len(names) :]
        sd, products = self._mixing(model.sample)
        least, vectors = np.linalg.eigh(products)
        if len(names) > 1 and sd > _MIXED * least[0]:
            mixed = [
                name for name, part in zip(names, vectors[:, 0], strict=True) if abs(part) > _LARGE
            ]
            reasons.append(f"noise hides how {', '.join(mixed[:5])} go together")
        within = estimated.expected[-len(names) :, -len(names) :]
        error = float(np.mean(np.sum((x @ within) * x, axis=1)))
        if error > _OUTWEIGHED * float((x @ slopes).var()):
            reasons.append(NOISE_OUTWEIGHS)
        _, asked = model.measurements[-1].point
        if float(np.sqrt(np.mean((x @ (slopes - asked)) ** 2))) > FAR:
            reasons.append(NOT_ENDED)
        sds = model.prior_sd * model.looseness
        empty = empty_features(self.task.features, self.all_columns)
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
        require_due(self.task, population, sums)
        if not sums:
            return RequestedRound(query=first_query(self.task), share=SHARES[0])
        job = _JobSums(self.task, sums)
        if len(sums) == 1:
            query = rules.moments_query(self.task, job.features, job.level)
            return RequestedRound(query=query, share=SHARES[1])
        model = job.model()
        if len(sums) == len(SHARES):
            return job.posterior(model)
        share = SHARES[len(sums)]
        found = HazardParameters.of(best_estimate(model)[0], model.intervals)
        score = rules.score_query(
            self.task,
            job.features,
            point=(*found.log_hazards.tolist(), *found.slopes.tolist()),
            hazard_cut=job.cut(model, found, part=SHARES[len(sums) - 1] / share),
        )
        return RequestedRound(query=score, share=share)
