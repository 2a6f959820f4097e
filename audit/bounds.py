"""What counts of right and wrong guesses prove about a mechanism.

An adversary guesses "the second world" where its statistic exceeds a threshold. Of `trials` runs
in each world it does so in `hits` of the second one (rightly) and in `alarms` of the first
(wrongly). Both proportions get exact one-sided bounds (Clopper and Pearson 1934,
doi:10.1093/biomet/26.4.404), and those bound what the mechanism costs from below:

    (epsilon, delta)-DP demands   hit rate <= exp(epsilon) alarm rate + delta
    mu-GDP demands                hit rate <= Phi(mu + Phi^-1(alarm rate))

(Dong, Roth and Su 2022, arXiv:1905.02383). The first bound holds for any mechanism whatever. The
second refutes the claim of mu-GDP, for any mechanism too; the epsilon that it implies is that of
a Gaussian mechanism.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import stats

from shoal_protocol.privacy.job_costs import gaussian_epsilon

Tail = Callable[[float], float]
"""x -> the probability that a statistic in the first world exceeds x."""

_CANDIDATES: Final = 200


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How often an adversary guessed "the second world" at one threshold."""

    trials: int  # in each world
    hits: int
    alarms: int


@dataclass(frozen=True, kw_only=True)
class LowerBounds:
    """What a mechanism costs at least: both hold together, up to the stated failure."""

    epsilon: float
    mu: float

    def implied_epsilon(self, delta: float) -> float:
        """Return the epsilon at `delta` of a Gaussian mechanism with this `mu`."""
        return gaussian_epsilon(mu=self.mu, delta=delta)


def at_least(successes: int, trials: int, failure: float) -> float:
    """Return a lower bound on a proportion that is too high with probability `failure` at most."""
    return float(stats.beta.ppf(failure, successes, trials - successes + 1)) if successes else 0.0


def at_most(successes: int, trials: int, failure: float) -> float:
    """Return an upper bound on a proportion that is too low with probability `failure` at most."""
    return 1.0 - at_least(trials - successes, trials, failure)


def lower_bounds(counts: list[Counts], *, delta: float, failure: float) -> LowerBounds:
    """Return the best bounds over thresholds that were fixed in advance.

    Each is above the true value with probability at most `failure`, over all thresholds and both
    bounds together (Bonferroni).

    Raises:
        ValueError: there are no counts.
    """
    if not counts:
        raise ValueError("bounds need counts at one threshold at least")
    each = failure / (2 * len(counts))
    found = [_bounds(one, delta, each) for one in counts]
    return LowerBounds(
        epsilon=max(bounds.epsilon for bounds in found), mu=max(bounds.mu for bounds in found)
    )


def _bounds(counts: Counts, delta: float, failure: float) -> LowerBounds:
    hits = at_least(counts.hits, counts.trials, failure)
    alarms = at_most(counts.alarms, counts.trials, failure)
    epsilon = math.log((hits - delta) / alarms) if hits > delta else 0.0
    mu = float(stats.norm.ppf(hits) - stats.norm.ppf(alarms)) if hits > 0.0 else 0.0
    return LowerBounds(epsilon=max(0.0, epsilon), mu=max(0.0, mu))


def sharpest_threshold(
    tail: Tail, *, distance: float, trials: int, delta: float, failure: float
) -> float:
    """Return the threshold at which the bound on epsilon is largest if a claim is exactly true.

    `tail` and `distance` say what was claimed: the statistic's tail in the first world, and by
    how much the second one is shifted. It looks at no data, so the threshold is fixed in advance.
    """

    def bound(threshold: float) -> float:
        hits = round(trials * tail(threshold - distance))
        counts = Counts(trials=trials, hits=hits, alarms=round(trials * tail(threshold)))
        return _bounds(counts, delta, failure).epsilon

    thresholds = np.linspace(0.0, distance + 6.0, _CANDIDATES)
    return float(max(thresholds, key=bound))
