"""Piecewise exponential regression from events, hazards and scores at three points.

As other regressions: the first two rounds measure the columns and their moments, and the point of
each later one follows from the rounds before it, read under many plausible designs.

Records leave by events, with hazards exp(a_j + x'b) in interval j, and without one at rates g_j
that do not depend on x. So how many are at risk when, of which features, follows from a, g and b.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from shoal_protocol.queries import HazardScoreSum, WeightedRowMatrix
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import hazards_from, matrix_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue import piecewise_exponential as rules
from shoal_studies.catalogue.measurements import query_of
from shoal_studies.catalogue.piecewise_exponential import (
    PiecewiseExponentialPosterior,
    PiecewiseExponentialTask,
    names_of,
)
from shoal_studies.catalogue.regression import REACH, Verdict
from shoal_studies.regression import constants
from shoal_studies.regression.engine import (
    Mixture,
    ScoredJob,
    designs_of,
    far_slopes,
    tidy,
    triangle,
)
from shoal_studies.regression.judging import (
    RegressionEvidence,
    beyond_bounds,
    few_complete,
    judged_slopes,
    lost_squares,
    one_class,
)
from shoal_studies.regression.plausible_designs import DesignRows, ReleasedDesign, released_design
from shoal_studies.regression.scores import (
    Expectation,
    NormalPrior,
    Scores,
    sampling_covariance,
    scatter_seen,
)

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


SumAndDerivative = tuple[Floats, Floats]
"""What a sum is expected to be, shape (s,), and the derivative by parameters, (s, 2 J + q)."""


def expected_sums(
    rows: Floats,
    turned: Floats,
    sizes: Floats,
    parameters: HazardParameters,
    there: Floats,
    followed: Floats,
) -> tuple[SumAndDerivative, SumAndDerivative, SumAndDerivative]:
    """Return the sums over records that a round is to release if `rows`, (n, 1 + q), are theirs.

    They are events and hazards, in J intervals, and scores.

    `sizes`, shape (n, 1), are what each counts for, and `turned`, shape (n, s), is of what scores
    are taken. `there`, shape (n, J), are the hazards that were asked, up to which they are
    `followed` for so long, (n, J).
    """
    x = rows[:, 1:]
    truth = parameters.rates(rows)
    leaving = np.exp(np.clip(parameters.log_leaving, -_LARGEST, _LARGEST))
    exposure, own = at_risk(parameters, rows, followed)
    # each row's own: derivatives by a_k and g_k are products with these two
    moves = followed * truth, followed * leaving

    def summed(values: Floats, *, directly: float) -> SumAndDerivative:
        """Return sums over rows, (J,), and derivatives; of events a_j is `directly` in it, too."""
        weighted = values * sizes
        total = weighted.sum(axis=0)
        by_rates = [
            np.diag((weighted * own * rate).sum(axis=0)) - np.tril(weighted.T @ move, -1)
            for rate, move in zip((truth, leaving), moves, strict=True)
        ]
        by_rates[0] = by_rates[0] + directly * np.diag(total)
        along = directly + own * truth - moves[0] @ _earlier(followed.shape[1])
        return total, np.hstack([*by_rates, (weighted * along).T @ x])

    events, hazards = truth * exposure, there * exposure
    residuals = (events - hazards) * sizes
    by_rate = residuals * own - (residuals @ _earlier(followed.shape[1]).T) * followed
    by_a, by_g = events * sizes + by_rate * truth, by_rate * leaving
    by_b = x * by_a.sum(axis=1)[:, None]
    by_scores = np.hstack([turned.T @ by_a, turned.T @ by_g, turned.T @ by_b])
    scores = residuals.sum(axis=1) @ turned
    return summed(events, directly=1.0), summed(hazards, directly=0.0), (scores, by_scores)


LEVEL_SD, _STEP_SD = 1.5, 0.7  # of log hazards: of all, and from one interval to the next
_LEAVING_SD, _LEAVING_STEP_SD = 2.0, 1.0


@dataclass(frozen=True, kw_only=True)
class HazardScores(Scores):
    """Events less hazards in J intervals, events and hazards together, and then scores.

    Parameters are a, g and b. Residuals are the events, less the hazards at `asked`, a and b, up to
    a hazard of `hazard_cut`. The `basis` is of constant and features, without a centre. In the
    round of moments there are scores alone, of events less the `level` that all have in the mean.
    """

    widths: Floats
    asked: tuple[Floats, Floats]
    hazard_cut: float
    level: float = 0.0

    @staticmethod
    def changes(design: DesignRows, step: Floats) -> Floats:
        intervals = (len(step) - design.rows.shape[1] + 1) // 2
        by_interval, slopes = np.split(step, [2 * intervals])
        along = np.where(np.arange(2 * intervals) < intervals, 1.0, 0.0)
        return np.outer(design.rows[:, 1:] @ slopes, along) + by_interval

    def moved(self, design: DesignRows, point: Floats) -> float:
        _, asked = self.asked
        changes = design.rows[:, 1:] @ (point[-len(asked) :] - asked)
        return float(np.sqrt(design.weights @ changes**2))

    def variances(self, expected: Floats, design_error: float) -> Floats:
        if self.is_of_moments:
            return super().variances(expected, design_error)
        count, noise = len(self.widths), self.noise_sd**2
        missed, both, scores = np.split(expected, [count, 2 * count])
        return np.concatenate(
            [
                np.full(count, 2.0 * noise + design_error**2 * float(np.mean(missed**2))),
                2.0 * noise + (constants.AT_RISK_ERROR * both) ** 2,
                np.full(len(scores), noise + design_error**2 * float(np.mean(scores**2))),
            ]
        )

    def expectation(
        self, design: DesignRows, records: float, dispersion: float, near: Floats
    ) -> Expectation:
        rows = self.rows(design)
        sizes = (records * design.weights * rows[:, 0])[:, None]
        turned = rows[:, 1:] / rows[:, :1]
        there = HazardParameters(self.asked[0], np.zeros(0), self.asked[1]).rates(design.rows)
        followed = time_followed(there, self.widths, self.hazard_cut)
        mean = self.level * (sizes.T @ turned).ravel()

        def expected(point: Floats) -> tuple[Floats, Floats]:
            parameters = HazardParameters.of(point, len(self.widths))
            sums = expected_sums(design.rows, turned, sizes, parameters, there, followed)
            (events, by_events), (hazards, by_hazards), (scores, by_scores) = sums
            if self.is_of_moments:
                return scores - mean, by_scores
            return (
                np.concatenate([events - hazards, events + hazards, scores]),
                np.vstack([by_events - by_hazards, by_events + by_hazards, by_scores]),
            )

        return expected

    def information(
        self, design: DesignRows, records: float, point: Floats
    ) -> tuple[Floats, Floats]:
        """Return how events less hazards, and scores, change with a and b, and how they scatter.

        Shapes (J + s, J + q) and (J + s, J + s), asked at the parameters `point`. Both are sums
        over records of an event's probability times products of its interval and features
        (Andersen and Gill 1982).
        """
        rows, x = self.rows(design), design.rows[:, 1:]
        parameters = HazardParameters.of(point, len(self.widths))
        truth = parameters.rates(design.rows)
        followed = time_followed(truth, self.widths, self.hazard_cut)
        exposure, _ = at_risk(parameters, design.rows, followed)
        events = truth * exposure * (records * design.weights)[:, None]

        def summed(left: Floats, right: Floats, sizes: Floats) -> Floats:
            weighted = events * sizes[:, None]
            own = (left * weighted.sum(axis=1)[:, None]).T @ right
            return np.block(
                [
                    [np.diag(weighted.sum(axis=0)), weighted.T @ right],
                    [left.T @ weighted, own],
                ]
            )

        turned = rows[:, 1:] / rows[:, :1]
        return summed(turned, x, rows[:, 0]), summed(turned, turned, rows[:, 0] ** 2)


def _walk(count: int, level_sd: float, step_sd: float) -> Floats:
    """Return the precision of a random walk whose mean has a prior of its own, (count, count)."""
    steps = np.diff(np.eye(count), axis=0)
    return np.asarray(
        steps.T @ steps / step_sd**2 + np.full((count,) * 2, (count * level_sd) ** -2.0)
    )


_FEWEST: Final = 0.002  # share of records with an event, at least


class HazardJob(ScoredJob[PiecewiseExponentialTask]):
    """Everything that follows from the sums released so far, one or more."""

    @property
    def intervals(self) -> int:
        """J, the number of intervals."""
        return len(self.task.times) - 1

    @property
    def level(self) -> float:
        """The share of records with an event, away from where logarithms end."""
        return min(max(float(self.all_columns.centres[-1]), _FEWEST), 1.0 - _FEWEST)

    @cached_property
    def prior_mean(self) -> Floats:
        """The prior's mean, shape (2 J + q,): hazards that are the same at all times, no slopes."""
        begin, *_, end = self.task.times
        passed = max(float(self.all_columns.centres[-2]) - begin, 1e-3 * (end - begin))
        logs = math.log(self.level / passed), math.log((1.0 - self.level) / passed)
        return np.repeat([*logs, 0.0], [self.intervals, self.intervals, len(self.task.features)])

    def prior(self, covariance: Floats, part: float) -> NormalPrior:
        """Return the prior: slopes as of other regressions.

        Logarithms of hazards, and of rates of leaving, are random walks over the intervals.
        """
        count = self.intervals
        precision = np.zeros((len(self.prior_mean),) * 2)
        precision[:count, :count] = _walk(count, LEVEL_SD, _STEP_SD)
        leaving = slice(count, 2 * count)
        precision[leaving, leaving] = _walk(count, _LEAVING_SD, _LEAVING_STEP_SD)
        precision[2 * count :, 2 * count :] = covariance / (part * self.task.prior_sd) ** 2
        return NormalPrior(self.prior_mean, precision)

    @cached_property
    def scores(self) -> tuple[HazardScores, ...]:
        """Sums of the rounds of scores, or before them those of the moments.

        Events in the moments tell more, but only if times at risk are as the model says.
        """
        return tuple(map(self._scores, self.sums[2:])) or (self._moment_scores(),)

    def _moment_scores(self) -> HazardScores:
        released = self.sums[1]
        query = query_of(released, WeightedRowMatrix)
        over = REACH * query.columns[-1].scale / query.target_limit
        nowhere = np.full(self.intervals, -_LARGEST), np.zeros(len(self.task.features))
        return HazardScores(
            values=matrix_from(query, released.values)[1:-2, -1] * over,
            noise_sd=float(released.noise_sd[-2]) / query.grid**2 * over,
            basis=np.eye(1 + len(self.task.features)),
            is_of_moments=True,
            widths=np.diff(self.task.times),
            asked=nowhere,
            hazard_cut=1.0,
            level=self.level,
        )

    def _scores(self, released: ReleasedSum) -> HazardScores:
        query = query_of(released, HazardScoreSum)
        unit = query.radius * REACH * query.hazard_cut
        seen = hazards_from(query, released.values.astype(np.float64))
        sds = hazards_from(query, released.noise_sd)
        log_hazards, slopes = np.split(np.array(query.point), [query.intervals])
        basis = np.eye(1 + query.features)
        basis[1:, 1:] = triangle(query.basis)
        whole = seen.events - seen.hazards, seen.events + seen.hazards, seen.scores
        return HazardScores(
            values=np.concatenate(whole) * unit,
            noise_sd=float(sds.scores[0]) * unit,
            basis=basis,
            squared_radius=(query.radius * REACH) ** 2,
            squares=seen.squares * unit**2,
            squares_sd=float(sds.squares[0]) * unit**2,
            widths=np.diff(self.task.times),
            asked=(log_hazards, slopes / REACH),
            hazard_cut=query.hazard_cut,
        )

    @cached_property
    def released(self) -> ReleasedDesign:
        """What the first two rounds tell of the rows."""
        return released_design(
            self.task.features, self.sums[0], self.sums[1], records=self.records[0]
        )

    @property
    def moments_query(self) -> WeightedRowMatrix:
        return rules.moments_query(self.task, self.features, self.level)

    def score_query(self) -> HazardScoreSum:
        """Return the query for scores where the sums so far lead to.

        Hazards are cut where noise, scatter and what is left out are least together.
        """
        mixture = self.mixture(constants.POINT_DESIGNS)
        point, _ = mixture.moments
        slopes, design = point[2 * self.intervals :], mixture.designs[0]
        query = rules.score_query(
            self.task,
            self.features,
            point=(*point[: self.intervals].tolist(), *slopes.tolist()),
            basis=tidy(mixture.basis[1:, 1:]),
            hazard_cut=1.0,
        )
        sd = self.noise(query) * query.radius * REACH
        last = replace(
            self.scores[0],
            basis=np.eye(1 + len(slopes)),
            squared_radius=rules.squared_radius(self.task),
            is_of_moments=False,
        )

        def events(cut: float) -> float:
            scores = replace(last, hazard_cut=cut)
            jacobian, _ = scores.information(design, self.records[0], point)
            return max(float(np.diagonal(jacobian)[: self.intervals].sum()), 1e-9)

        typical = float(np.sqrt(np.mean(slopes**2)))
        whole, costs = events(math.inf), []
        for each in constants.HAZARD_CUTS:
            seen = events(each)
            missed = constants.DRIFT * typical * math.sqrt(max(1.0 - seen / whole, 0.0))
            costs.append(((sd * each) ** 2 + seen) / seen**2 + missed**2)
        return query.model_copy(update={"hazard_cut": constants.HAZARD_CUTS[int(np.argmin(costs))]})

    def posterior(self) -> PiecewiseExponentialPosterior:
        """Return the posterior: a mixture over plausible designs, with the records' own scatter."""
        count, width = self.intervals, len(self.task.features)
        mixture = self.mixture(designs_of(count + width))
        mean, noise = mixture.moments
        last, middle = self.scores[-1], mixture.designs[0]
        jacobian, expected = last.information(middle, self.records[0], mean)
        assert last.squares is not None  # noqa: S101 - a round of scores has them
        scattered, scattered_sd, own = scatter_seen(
            expected[count:, count:], last.squares, last.squares_sd
        )
        roots = np.sqrt(np.append(np.full(count, max(scattered, 1.0)), own))
        meat = expected * np.outer(roots, roots) + 1e-9 * np.trace(expected) * np.eye(len(roots))
        kept = np.r_[:count, 2 * count : len(mean)]  # leaving is nobody's question
        widest = self.prior(mixture.feature_covariance, 1.0).of(kept)
        sampling = sampling_covariance(jacobian, meat, widest)
        lost, may_be_lost = lost_squares(
            self.task.features, self.all_columns, self.released, mixture.designs, last
        )
        far = far_slopes(sampling, np.append(np.zeros(count), may_be_lost), self.records[0])
        covariance = noise[np.ix_(kept, kept)] + sampling + far
        verdict = self._verdict(mixture, covariance[count:, count:], lost)
        features_first = np.r_[count : count + width, :count]
        spreads = self.all_columns.spreads[:width]
        units = np.append(1.0 / spreads, np.ones(count))
        shown = kept[features_first]
        covariance = covariance[np.ix_(features_first, features_first)] * np.outer(units, units)
        return PiecewiseExponentialPosterior(
            names=names_of([each.name for each in self.task.features], self.task.times),
            target=self.task.event,
            time=self.task.time.name,
            edges=self.task.times,
            centres=tuple(self.all_columns.centres[:width].tolist()),
            coefficients=tuple((mean[shown] * units).tolist()),
            covariance=covariance.tolist(),
            components=(mixture.means[:, shown] * units).tolist(),
            shares=tuple(mixture.weights.tolist()),
            prior_mean=tuple((self.prior_mean[shown] * units).tolist()),
            prior_sd=tuple((widest.sd[features_first] * units).tolist()),
            scatter=scattered,
            scatter_sd=scattered_sd,
            spreads=tuple(spreads.tolist()),
            records_per_client=self.task.records_per_client,
            records=max(1, round(self.records[0])),
            verdict=verdict,
        )

    def _verdict(self, mixture: Mixture, covariance: Floats, lost: Floats) -> Verdict:
        """Return the verdict; `covariance`, shape (q, q), is of the slopes, in spreads.

        Rows have lost the parts `lost`, shape (q,), of features' mean squares.
        """
        if self.all_columns.one_bound[-1] < 0.0:
            return one_class(
                f"hardly any record has the event {self.task.event}: is it coded 1, or is its "
                "value named?"
            )
        mean, noise = mixture.moments
        last, middle, first = self.scores[-1], mixture.designs[0], 2 * self.intervals
        seen = RegressionEvidence(
            columns=self.all_columns,
            sums=self.sums,
            records=self.records[0],
            designs=mixture.designs,
            lost=lost,
            slopes=mean[None, first:],
            noise=noise[first:, first:],
            predictors=middle.rows[:, 1:] @ mean[first:, None],
            moved=last.moved(middle, mean),
            prior_sd=self.task.prior_sd,
            pulled=np.zeros(len(mean) - first),  # no ball of rows is widened
            covariance=covariance,
            large_error=mixture.large_error,
        )
        reasons = few_complete(seen.complete) or beyond_bounds(self.task.features, self.all_columns)
        names = [each.name for each in self.task.features]
        return judged_slopes(self.task.features, names, reasons, seen)
