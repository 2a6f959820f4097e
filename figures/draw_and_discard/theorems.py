"""What k instances do to a model without a pull: theorems that the figures show simulations beside.

In one update an instance is drawn, its copy b becomes b + u, and this replaces an instance drawn
independently of the first; u has mean 0 and variance `update_variance` (Pihur et al. 2018,
arXiv:1807.04369, Theorem 1 and Lemma 1). Spreads are variances over instances with divisor k - 1.
The proofs are in docs/mathematics.md, section 9. Under a pull: `shoal_studies.crowds.theory`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shoal_protocol.crowds.tasks import CrowdTask
from shoal_studies.crowds.theory import Contraction

UNIFORM: Final = 1.0 / 3.0
"""Mean square of a feature that is spread evenly over its bounds."""


def stationary_spread(*, instances: int, update_variance: float) -> float:
    """Return the spread that updates without a pull keep up: k update_variance / 2 (Theorem 1).

    Raises:
        ValueError: fewer than 2 instances, which have no spread.
    """
    if instances < 2:
        raise ValueError("a spread needs at least 2 instances")
    return instances * update_variance / 2.0


def spread_after(
    updates: float, *, instances: int, update_variance: float, start: float = 0.0
) -> float:
    """Return the expected spread after so many updates without a pull, from the spread `start`.

    It is (1 - 2/k^2) times itself plus update_variance / k after each; half of what it differs
    from the stationary one is gone after 0.35 k^2 updates.

    Raises:
        ValueError: fewer than 2 instances, or fewer than 0 updates.
    """
    if updates < 0.0:
        raise ValueError("updates are counted from 0")
    end = stationary_spread(instances=instances, update_variance=update_variance)
    return end + (start - end) * math.pow(1.0 - 2.0 / instances**2, updates)


def discarded(instances: int) -> float:
    """Return which part of all updates no instance holds in the end: 1 - 1/k (Lemma 1)."""
    if instances < 1:
        raise ValueError("there is at least 1 instance")
    return 1.0 - 1.0 / instances


def expected_lifetime(instances: int) -> float:
    """Return after how many further updates one is held by all or by none, on average: k H_{k-1}.

    The instances that hold it go up or down by one with probability i(k - i)/k^2 each; from 1 the
    chain spends k/i updates at i.
    """
    if instances < 1:
        raise ValueError("there is at least 1 instance")
    return instances * math.fsum(1.0 / held for held in range(1, instances))


def expected_fixation_time(instances: int) -> float:
    """Return after how many updates one that all come to hold is held by all: k(k - 1) on average.

    Given that, the chain spends k updates at each of 1 .. k - 1 (Doob's transform by h(i) = i).
    """
    if instances < 1:
        raise ValueError("there is at least 1 instance")
    return float(instances * (instances - 1))


def expected_rmse(
    learning: Sequence[Contraction], *, contributions: int, start_errors: Sequence[float]
) -> float:
    """Return the root of the mean square error of the averaged weights after so many updates.

    `start_errors`, one for each weight, is how far off all instances were at first.
    """
    squares = [
        each.squared_error_after(contributions, start_error=error)
        for each, error in zip(learning, start_errors, strict=True)
    ]
    return math.sqrt(math.fsum(squares) / len(squares))


def squared_error_after_turn(learning: Contraction, contributions: float, *, turn: float) -> float:
    """Return the mean square of the averaged model, so many contributions after the truth turned.

    It is the noise, as in stationarity, and what is left of the turn, which forgets at the rate
    pull / (k + m): about averaged_variance + turn^2 exp(-2 contributions pull / (k + m)).
    """
    keeps = replace(learning, update_variance=0.0)
    return learning.averaged_variance + keeps.squared_error_after(contributions, start_error=turn)


def pulled(learning: Contraction, updates: float) -> float:
    """Return the part of the start's error that remains in the mean after so many updates."""
    crowd = learning.instances + learning.open_sessions
    return math.exp(updates * math.log1p(-learning.pull / crowd))


def pulled_spread(learning: Contraction) -> float:
    """Return the spread that updates with a pull keep up.

    It is k/(k - 1) times what averaging takes off the mean square; without open sessions
    k update_variance / ((2 - pull / touched)(1 + pull (k - 1))).

    Raises:
        ValueError: there is only 1 instance.
    """
    k = learning.instances
    if k < 2:
        raise ValueError("a spread needs at least 2 instances")
    return k / (k - 1) * (learning.instance_variance - learning.averaged_variance)


def contractions(
    task: CrowdTask,
    *,
    slope: float,
    score_variance: float = 0.0,
) -> tuple[Contraction, ...]:
    """Return the pull and noise variance of each of the p weights, the intercept first if any.

    Features are spread evenly over their bounds. `slope` is the mean of mu'(x'b).
    `score_variance` is that of y - mean(x'b) at the optimum, on the scale of targets in which the
    task learns; it counts as far as the clip lets it through. Shrinkage by l2 is not an error here.

    Raises:
        ValueError: a pull is too strong for the formulas, or a guess is not positive.
    """
    if not (0.0 < slope and score_variance >= 0.0):
        raise ValueError("a slope is above 0, and a score's variance not below")
    touched = task.touched / task.dimension
    found = []
    for square in [*([1.0] if task.intercept else []), *[UNIFORM] * len(task.features)]:
        own = min(task.learning_rate**2 * score_variance * square, task.clip**2)
        found.append(
            Contraction(
                instances=task.instances,
                update_variance=task.update_variance + touched * own,
                pull=touched * task.learning_rate * (slope * square + task.l2),
                touched=touched,
            )
        )
    return tuple(found)
