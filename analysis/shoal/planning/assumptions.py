"""The records that a plan assumes, as a fixed set of points with weights; nothing is drawn.

Features are evenly spread points, and targets are integrated over. So a protocol's effect on one
record can be averaged over all expected records, and two plans of the same study agree.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal.planning.study import Study
from shoal_protocol.queries.models import Family, probability

Floats = NDArray[np.float64]

POINTS: Final = 4096
_NODES: Final = 15  # of Gauss and Hermite's rule for a linear model's residuals
_STEPS: Final = 500
_DIFFERENCE: Final = 1e-5  # of a coefficient, for derivatives
_DIFFERENT: Final = 9  # coefficients whose slopes are computed one by one


@dataclass(frozen=True)
class Assumed:
    """The assumed records of a study, as weighted points.

    `features`, shape (n, d), in [-1, 1]; `targets`, shape (n, m), with `weights`, shape (n, m),
    that sum to 1; `truth`, shape (p,), has the constant's coefficient first. A linear model's
    targets are in [-1, 1].
    """

    study: Study
    features: Floats
    targets: Floats
    weights: Floats
    truth: Floats

    def rows(self, constant: float) -> Floats:
        """Return the design, shape (n, p), with a constant coordinate of that size."""
        return np.column_stack([np.full(len(self.features), constant), self.features])

    def residuals(self, predictors: Floats, every: int = 1) -> Floats:
        """Return target less mean, shape (n, m), at linear predictors, shape (n,).

        They are those of each point, or of every so manieth one.
        """
        return self.targets[::every] - mean_of(self.study, predictors)[:, None]

    def slopes(self, rows: Floats) -> Floats:
        """Return how steeply the mean score falls at the truth, shape (p,), for `rows`, (n, p).

        It is the mean of w x_j^2, with w the derivative of the model's mean.
        """
        constant = rows[0, 0]
        truth = np.concatenate([self.truth[:1] / constant, self.truth[1:]])
        means = mean_of(self.study, rows @ truth)
        steepness = means  # a Poisson model's
        if self.study.family == "linear":
            steepness = np.ones(len(means))
        elif self.study.family == "logistic":
            steepness = means * (1.0 - means)
        slopes: Floats = steepness @ rows**2 / len(rows)
        return slopes


def assume(study: Study) -> Assumed:
    """Return the records that are assumed of a study."""
    features = 2.0 * evenly_spread(POINTS, study.features) - 1.0
    signs = np.where(np.arange(study.coefficients) % 2 == 0, 1.0, -1.0)
    truth = study.effect * signs
    predictors = truth[0] + features @ truth[1:]
    targets, weights = _OUTCOMES[study.family](study, predictors)
    return Assumed(study, features, targets, weights / POINTS, truth)


def mean_of(study: Study, predictors: Floats) -> Floats:
    """Return the model's mean at linear predictors, of any shape."""
    if study.family == "linear":
        return predictors
    if study.family == "logistic":
        return probability(predictors)
    return np.exp(np.minimum(predictors, math.log(study.largest_count)))


def settled(
    mean_step: Callable[[Floats], Floats], start: Floats, *, slopes: Floats
) -> tuple[Floats, Floats]:
    """Return where the mean step is zero, shape (p,), and how steeply it falls there, shape (p,).

    `slopes`, shape (p,), are about how steeply it falls at `start`. What is returned of them is the
    diagonal of the derivative, as a positive number: features are hardly correlated, and those
    beyond the first few are as these.

    Raises:
        ValueError: there is no such point near `start`.
    """
    point = start.copy()
    for _ in range(_STEPS):
        move = mean_step(point) / slopes
        point = point + np.clip(move, -0.5, 0.5)
        if np.abs(move).max() < 1e-9:
            return point, _falls(mean_step, point)
    raise ValueError("the assumed records have no estimate: assume smaller effects or a wider clip")


def evenly_spread(count: int, dimension: int) -> Floats:
    """Return points in the unit cube, shape (count, dimension): multiples of primes' square roots.

    Richtmyer's sequence; up to 100 columns correlate by .16 at most.
    """
    primes: list[int] = []
    candidate = 2
    while len(primes) < dimension:
        if all(candidate % prime for prime in primes):
            primes.append(candidate)
        candidate += 1
    steps = np.sqrt(np.array(primes, dtype=np.float64))
    return (0.5 + np.outer(np.arange(1, count + 1), steps)) % 1.0


def _falls(mean_step: Callable[[Floats], Floats], point: Floats) -> Floats:
    falls = np.empty(len(point))
    few = min(len(point), _DIFFERENT)
    for place in range(few):
        move = np.zeros(len(point))
        move[place] = _DIFFERENCE
        rise = mean_step(point + move) - mean_step(point - move)
        falls[place] = -rise[place] / (2.0 * _DIFFERENCE)
    falls[few:] = falls[1:few].mean()
    return falls


def _numbers(study: Study, predictors: Floats) -> tuple[Floats, Floats]:
    """Return a linear model's targets, normal around their means and cut, and their weights."""
    nodes, masses = np.polynomial.hermite_e.hermegauss(_NODES)
    targets = np.clip(predictors[:, None] + study.residual_sd * nodes, -1.0, 1.0)
    return targets, np.broadcast_to(masses / masses.sum(), targets.shape)


def _classes(study: Study, predictors: Floats) -> tuple[Floats, Floats]:
    """Return both classes and their probabilities."""
    chances = probability(predictors)
    weights = np.column_stack([1.0 - chances, chances])
    return np.broadcast_to(np.array([0.0, 1.0]), weights.shape), weights


def _counts(study: Study, predictors: Floats) -> tuple[Floats, Floats]:
    """Return counts and their probabilities; the last one stands for all from there on."""
    log_rates, top = np.clip(predictors, -700.0, 700.0)[:, None], math.ceil(study.largest_count)
    counts = np.arange(top + 1.0)
    logs = np.array([math.lgamma(count + 1.0) for count in counts])
    masses = np.exp(counts * log_rates - np.exp(log_rates) - logs)
    masses[:, -1] = np.maximum(0.0, 1.0 - masses[:, :-1].sum(axis=1))
    return np.broadcast_to(np.minimum(counts, study.largest_count), masses.shape), masses


_OUTCOMES: Final[dict[Family, Callable[[Study, Floats], tuple[Floats, Floats]]]] = {
    "linear": _numbers,
    "logistic": _classes,
    "poisson": _counts,
}
"""Targets, shape (n, m), and their weights, by predictors, shape (n,)."""
