"""What sums of events, hazards and scores are expected to be, on a public sample of rows.

Records leave by events, with hazards exp(a_j + x'b) in interval j, and without one at rates g_j
that do not hang on x. So how many are at risk when, of which features, follows from a, g and b.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_learning.regression.design_sample import DesignSample

Floats = NDArray[np.float64]

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
        """Return the hazards at `rows`, shape (s, 1 + q), the constant first: (s, J)."""
        return rates(self.log_hazards, self.slopes, rows)


def rates(log_hazards: Floats, slopes: Floats, rows: Floats) -> Floats:
    """Return exp(a_j + x'b) at `rows`, shape (s, 1 + q), the constant first: shape (s, J)."""
    logs = np.add.outer(rows[:, 1:] @ slopes, log_hazards)
    return np.asarray(np.exp(np.clip(logs, -_LARGEST, _LARGEST)))


@dataclass(frozen=True)
class AtRisk:
    """For how long each row is expected to be at risk and followed in each interval, (s, J).

    `own`, shape (s, J), is the derivative of its logarithm by the rate of leaving in the same
    interval; by that in an earlier one it is minus how long a row was `followed` there, (s, J).
    """

    exposure: Floats
    own: Floats
    followed: Floats


def at_risk(parameters: HazardParameters, rows: Floats, followed: Floats) -> AtRisk:
    """Return exposures of `rows`, (s, 1 + q), each `followed` in an interval so long at most."""
    leaving = np.exp(np.clip(parameters.log_leaving, -_LARGEST, _LARGEST))
    passed = (parameters.rates(rows) + leaving) * followed
    before = passed @ _earlier(passed.shape[1])
    small = passed < _SMALL
    safe = np.where(small, 1.0, passed)
    decay = np.exp(-safe)
    share = np.where(small, 1.0 - passed / 2.0, (1.0 - decay) / safe)
    own = np.where(small, -0.5, decay / (1.0 - decay) - 1.0 / safe)
    return AtRisk(np.exp(-before) * followed * share, own * followed, followed)


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
    truth, there = parameters.rates(rows), rates(*asked, rows)
    leaving = np.exp(np.clip(parameters.log_leaving, -_LARGEST, _LARGEST))
    found = at_risk(parameters, rows, time_followed(there, widths, cut))
    # each row's own: derivatives by a_k and g_k are products with these two
    moves = found.followed * truth, found.followed * leaving

    def summed(values: Floats, *, directly: float) -> tuple[Floats, Floats]:
        """Return sums over rows, (J,), and derivatives; of events a_j is `directly` in it, too."""
        weighted = values * weights
        total = weighted.sum(axis=0)
        by_rates = [
            np.diag((weighted * found.own * rate).sum(axis=0)) - np.tril(weighted.T @ move, -1)
            for rate, move in zip((truth, leaving), moves, strict=True)
        ]
        by_rates[0] = by_rates[0] + directly * np.diag(total)
        along = directly + found.own * truth - moves[0] @ _earlier(len(widths))
        return total, np.hstack([*by_rates, (weighted * along).T @ x])

    events, hazards = truth * found.exposure, there * found.exposure
    of_events, by_events = summed(events, directly=1.0)
    of_hazards, by_hazards = summed(hazards, directly=0.0)
    residuals = (events - hazards) * weights
    by_rate = residuals * found.own - (residuals @ _earlier(len(widths)).T) * found.followed
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
    events = truth * at_risk(parameters, rows, time_followed(truth, widths, cut)).exposure

    def summed(weights: Floats) -> Floats:
        weighted = events * (weights * sample.sizes)[:, None]
        cross = weighted.T @ x
        own = (x * weighted.sum(axis=1)[:, None]).T @ x
        return np.block([[np.diag(weighted.sum(axis=0)), cross], [cross.T, own]])

    return summed(sample.weights), summed(sample.weights**2)
