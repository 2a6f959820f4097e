"""The posterior of hazards and coefficients, given noisy sums of events, hazards and scores.

Each round is a measurement with known noise. What it is expected to be follows from the parameters
and from a public sample of rows, with an error that grows with how far the point was from them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_learning.hazards.expectations import HazardParameters, expected_sums
from shoal_learning.regression.design_sample import DesignSample
from shoal_learning.regression.mixtures import Solution, averaged_over
from shoal_learning.regression.score_likelihood import MODEL_ERROR

Floats = NDArray[np.float64]

_COMPOSITION_ERROR: Final = 0.05  # of how many are at risk: the sample's leave as the model says
_SHARED_SDS: Final = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03)  # the widest is found soonest
LEVEL_SD, _STEP_SD = 1.5, 0.7  # of log hazards: of all, and from one interval to the next
_LEAVING_SD, _LEAVING_STEP_SD = 2.0, 1.0
_ITERATIONS: Final = 40
_LONGEST_STEP: Final = 1.0
_TOLERANCE: Final = 1e-3


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


@dataclass(frozen=True)
class FirstScores:
    """Sums of features over events less the `level`, shape (q,), with noise of `sd` each."""

    scores: Floats
    sd: float
    level: float


@dataclass(frozen=True, kw_only=True)
class HazardModel:
    """What rounds measured, and what is known beforehand.

    `widths`, shape (J,), are of the intervals. A log hazard is about `level` and one of leaving
    about `leaving`. `prior_sd` is a coefficient's standard deviation, times `looseness`, (q,),
    where each is by itself. Of a feature's mean square the share `far`, shape (q,), is far out.
    """

    sample: DesignSample
    widths: Floats
    level: float
    leaving: float
    first: FirstScores
    measurements: tuple[HazardMeasurement, ...]
    prior_sd: float
    looseness: Floats
    far: Floats

    @property
    def intervals(self) -> int:
        return len(self.widths)

    @property
    def prior_mean(self) -> Floats:
        """Of log hazards, of logarithms of leaving, and of coefficients: shape (2 J + q,)."""
        count = self.intervals
        return np.repeat([self.level, self.leaving, 0.0], [count, count, len(self.looseness)])

    def precision(self, shared_sd: float | None = None) -> Floats:
        """Return the prior's precision, (2 J + q, 2 J + q): slopes share a deviation, or none.

        Logarithms of hazards are a random walk over the intervals.
        """
        slopes = self.prior_sd * self.looseness
        if shared_sd is not None:
            slopes = np.full(len(slopes), min(shared_sd, self.prior_sd))
        count = self.intervals
        whole = np.zeros((2 * count + len(slopes),) * 2)
        whole[:count, :count] = _walk(count, LEVEL_SD, _STEP_SD)
        whole[count : 2 * count, count : 2 * count] = _walk(count, _LEAVING_SD, _LEAVING_STEP_SD)
        whole[2 * count :, 2 * count :] = np.diag(slopes**-2.0)
        return whole


def _walk(count: int, level_sd: float, step_sd: float) -> Floats:
    """Return the precision of a random walk whose mean has a prior of its own, (count, count)."""
    steps = np.diff(np.eye(count), axis=0)
    return np.asarray(
        steps.T @ steps / step_sd**2 + np.full((count,) * 2, (count * level_sd) ** -2.0)
    )


@dataclass(frozen=True)
class HazardEstimate:
    """`mean` and `covariance` are of log hazards, then coefficients, in spreads: J + q numbers.

    The covariance holds noise and prior. `influence` is what of the data's own best fit goes into
    the estimate, and `expected` the coefficients' covariance if these are alike, (q, q).
    """

    mean: Floats
    covariance: Floats
    influence: Floats
    expected: Floats
    parameters: HazardParameters


def best_parameters(model: HazardModel) -> HazardParameters:
    """Return the best estimate of all parameters."""
    return HazardParameters.of(_shared(model)[0], model.intervals)


def estimate(model: HazardModel) -> HazardEstimate:
    """Return the estimate with its error by noise and prior; sampling is the caller's to add.

    The mean is that under a prior whose standard deviation all coefficients share, unknown. The
    covariance is the mean square about it under a prior for each coefficient by itself.
    """
    mean, expected = _shared(model)
    wide = _solve(model, None, mean)
    away = mean - wide.mean
    covariance = wide.covariance + np.outer(away, away)
    count = model.intervals
    kept = np.r_[:count, 2 * count : len(mean)]
    influence = np.eye(len(mean)) - wide.covariance @ model.precision()
    return HazardEstimate(
        mean[kept],
        covariance[np.ix_(kept, kept)],
        influence[np.ix_(kept, kept)],
        expected[2 * count :, 2 * count :],
        HazardParameters.of(mean, count),
    )


def _shared(model: HazardModel) -> tuple[Floats, Floats]:
    """Return mean and covariance, averaged over what standard deviation coefficients share."""
    return averaged_over(_SHARED_SDS, partial(_solve, model), model.prior_mean)


def _solve(model: HazardModel, shared_sd: float | None, start: Floats) -> Solution:
    """Return the posterior mode under one prior, by Gauss and Newton's method."""
    precision = model.precision(shared_sd)
    point, curvature, evidence = start, precision, 0.0
    for _ in range(_ITERATIONS):
        away = point - model.prior_mean
        curvature, slope = precision, -precision @ away
        evidence = 0.5 * float(slope @ away) + 0.5 * float(np.linalg.slogdet(precision)[1])
        for gap, jacobian, variance in _gaps(model, point):
            curvature = curvature + jacobian.T @ (jacobian / variance[:, None])
            slope = slope + jacobian.T @ (gap / variance)
            evidence -= 0.5 * float(np.sum(gap**2 / variance + np.log(variance)))
        step = np.linalg.solve(curvature, slope)
        length = float(np.abs(step).max())
        point = point + step * min(1.0, _LONGEST_STEP / max(length, _TOLERANCE))
        if length < _TOLERANCE:
            break
    evidence -= 0.5 * float(np.linalg.slogdet(curvature)[1])
    return Solution(point, np.asarray(np.linalg.inv(curvature)), evidence)


def _gaps(model: HazardModel, point: Floats) -> Iterator[tuple[Floats, Floats, Floats]]:
    """Yield what each sum is above its expectation, the expectation's derivative, and variances."""
    parameters = HazardParameters.of(point, model.intervals)
    for each in model.measurements:
        found = expected_sums(model.sample, model.widths, parameters, each.point, each.cut)
        missed = found.events - found.hazards
        gap = each.events - each.hazards - missed
        error = 2.0 * each.sd**2 + MODEL_ERROR**2 * float(np.mean(missed**2))
        yield gap, found.by_events - found.by_hazards, np.full(len(gap), error)
        both = found.events + found.hazards
        errors = 2.0 * each.sd**2 + (_COMPOSITION_ERROR * both) ** 2
        yield each.events + each.hazards - both, found.by_events + found.by_hazards, errors
        error = each.sd**2 + MODEL_ERROR**2 * float(np.mean(found.scores**2))
        yield each.scores - found.scores, found.by_scores, np.full(len(found.scores), error)
    if not model.measurements:
        yield _first_gap(model, parameters)


def _first_gap(model: HazardModel, parameters: HazardParameters) -> tuple[Floats, Floats, Floats]:
    """Return the same of the first scores: events of all, wherever hazards are none."""
    asked = np.full(model.intervals, -30.0), np.zeros(len(parameters.slopes))
    found = expected_sums(model.sample, model.widths, parameters, asked, 1.0)
    features = model.sample.total(model.sample.weights)[1:]
    scores = found.scores - model.first.level * features
    error = model.first.sd**2 + MODEL_ERROR**2 * float(np.mean(scores**2))
    return model.first.scores - scores, found.by_scores, np.full(len(scores), error)
