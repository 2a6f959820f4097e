"""Bounds how far later noise hides a contribution to a crowd task.

Two neighbours' steps are a distance apart. Every later contribution that builds on them adds
noise. A shift of that noise may cover part of the distance, at the cost of the Laplace mechanism;
the rest remains for later noises. Theorem 2 of Pihur et al. needs more than their proof shows, and
the true cost exceeds it for the variant "one" with several weights: one weight's difference moves
the steps on the others. Proofs: docs/mathematics.md, theorems 7 to 9.
"""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from figures.draw_and_discard.convolution import (
    LATTICE_FAILURE,
    MOST_ADDITIONS,
    laplace_sum_epsilon,
    lattice_shift,
)
from shoal_protocol.crowds.tasks import LARGEST_WEIGHT, CrowdTask
from shoal_protocol.privacy.mechanisms import require_probability

FloatArray = NDArray[np.float64]

_ORDERS: Final = 1.0 + np.geomspace(1e-2, 1e5, 400)  # of Rényi divergences; any are valid
_CANDIDATES_PER_DECADE: Final = 16
_MOST_TOUCHES: Final = 4096  # of one weight: more of them are not counted on
_UNIT_ROUNDOFF: Final = 2.0**-53
_MARGIN: Final = 1.0 + 1e-9  # relative, for the sums below


def curvature(task: CrowdTask) -> float:
    """Return L, the largest slope of the model's mean in its linear predictor."""
    if task.family == "linear":
        return 1.0
    return 0.25 if task.family == "logistic" else task.target.upper


def refusal(task: CrowdTask) -> str | None:
    """Return why no claim is made that later noise hides this task's steps; None if one is made.

    Rows have entries within [-1, 1], so max |x|^2 is p.
    """
    touched = task.touched
    if touched > 1 and task.clipping == "coordinate":
        return (
            "steps that are clipped coordinate by coordinate do not bring weights closer: "
            'choose clipping "residual" or the variant "one"'
        )
    if task.learning_rate * (curvature(task) * touched + task.l2) > 2.0:
        return (
            "the learning rate is above 2 / (L max |x|^2), so that steps may drive weights apart: "
            "lower it"
        )
    return None


def hidden_epsilon(task: CrowdTask, *, additions: int, delta: float) -> float | None:
    """Return an epsilon at `delta` of one contribution behind `additions` noises, its own included.

    They are those of contributions of this task that build on one another. Against whoever sees
    nothing before the last of them; never above the pure epsilon, which holds against everybody.
    None if nothing is proven: `refusal` says why.

    Raises:
        ValueError: `delta` is not strictly within (0, 1), or `additions` is not positive.
    """
    require_probability(delta)
    if additions < 1:
        raise ValueError("additions must be positive: a contribution has its own noise")
    if refusal(task) is not None:
        return None
    if task.dimension == 1:
        prices = _by_convolution(task, additions, delta)
    elif task.variant == "one":
        prices = _coordinate_by_coordinate(task, additions, delta)
    else:
        prices = _contracting(task, additions, delta)
    return min([task.contribution_epsilon, *prices])


def rounding(task: CrowdTask) -> float:
    """Return by how much a coordinate of two steps may differ more than their real-valued ones.

    In lattice units: what is cut off of a step, and of a decayed weight, on either side, and what
    floats lose with weights as large as may be.
    """
    return 2.0 + (3.0 if task.l2 else 0.0) + _lost_by_floats(task)


def _lost_by_floats(task: CrowdTask) -> float:
    """Return the same for what floats lose, of x'b above all, whose terms may be LARGEST_WEIGHT."""
    p, rate, slope = task.dimension, task.learning_rate, curvature(task)
    largest_mean = task.target.upper if task.family == "poisson" else 1.0
    lost = 2.0 * LARGEST_WEIGHT * _UNIT_ROUNDOFF * rate * slope * p * (p + 10.0)
    return lost + 16.0 * _UNIT_ROUNDOFF * task.grid * rate * (1.0 + largest_mean)


def _by_convolution(task: CrowdTask, additions: int, delta: float) -> Iterator[float]:
    """Yield prices for a single weight: there no contraction is worse than none.

    A step that is cut to an integer is one as well, if no unit of weight moves it by more than
    two (by one, if weights decay, which are cut too). What floats do to it is made up for by shifts
    of the noise, in both worlds.
    """
    steepest = 1.0 if task.l2 else 2.0
    if task.learning_rate * curvature(task) > steepest:
        return
    shift, scale = 2 * task.lattice_clip, task.noise_scale
    off = math.ceil(_lost_by_floats(task)) + (1 if task.l2 else 0)
    noises, last = min(additions, MOST_ADDITIONS), math.inf
    while noises:
        moved = (noises - 1) * off / scale
        left = delta * math.exp(-moved) - (1.0 + math.exp(shift / scale)) * LATTICE_FAILURE
        if left > 0.0:
            covering = lattice_shift(shift=shift, scale=scale, additions=noises)
            found = laplace_sum_epsilon(delta=left, shift=covering, additions=noises) + 2.0 * moved
            yield found
            if found > last:
                return
            last = found
        noises //= 2


def _contracting(task: CrowdTask, additions: int, delta: float) -> Iterator[float]:
    """Yield prices for steps on all weights at once, which bring them closer in the L2 norm."""
    root = math.sqrt(task.dimension)
    distance = 2.0 * task.lattice_clip * root / task.noise_scale
    slack = root * (rounding(task) + 1.0) / task.noise_scale
    for noises in _up_to(additions):
        yield contracting_epsilon(distance=distance, slack=slack, noises=noises, delta=delta)


def contracting_epsilon(*, distance: float, slack: float, noises: int, delta: float) -> float:
    """Return an epsilon at `delta` of two points that contractions and noises bring together.

    Distances are Euclidean, in scales of the independent Laplace noises on all coordinates;
    `slack` is by how much a map may miss being a contraction, and a shift what was meant.
    """
    cost = noises * (distance / noises + slack) ** 2 / 2.0
    return _epsilon(_ORDERS * (_ORDERS - 1.0) * cost, delta)


def _coordinate_by_coordinate(task: CrowdTask, additions: int, delta: float) -> Iterator[float]:
    """Yield prices for the variant "one": noise is on one weight in p, and others tell of it."""
    p, slack = task.dimension, (rounding(task) + 1.0) / task.noise_scale
    distance = 2.0 * task.lattice_clip / task.noise_scale
    leak = task.learning_rate * curvature(task)
    for touches in _up_to(min(additions, _MOST_TOUCHES)):
        missed = _binomial_at_most(touches - 2, additions - 1, 1.0 / p)
        if missed >= delta / 2.0:
            break
        own, others = coordinate_costs(
            distance=distance, leak=leak, slack=slack, others=p - 1, touches=touches
        )
        orders = _ORDERS * (_ORDERS - 1.0)
        moments = orders * float(np.sum(own)) + _geometric_moments(orders, others, 1.0 / p)
        yield _epsilon(moments, delta - missed)


def coordinate_costs(
    *, distance: float, leak: float, slack: float, others: int, touches: int
) -> tuple[FloatArray, FloatArray]:
    """Return what shifts of the noises cost that bring one weight's difference to zero.

    Half their squares, in scales of the noise: of those on the weight itself, shape (`touches`,),
    and of one on another weight after each of these but the last, which makes up for `leak` times
    the difference that is left then. `others` such are expected each time.
    """
    left = _distances(distance, leak * math.sqrt(others), touches)
    own: FloatArray = (left[:-1] - left[1:] + slack) ** 2 / 2.0
    elsewhere: FloatArray = (leak * left[1:-1] + slack) ** 2 / 2.0
    return own, elsewhere


def _distances(distance: float, pull: float, touches: int) -> FloatArray:
    """Return how far apart neighbours are after 0, ..., `touches` noises, from `distance` to 0.

    Solves z'' = pull^2 z in steps, which makes the cost of own noise and leaks least.
    """
    rate = 2.0 * math.asinh(pull / 2.0)
    left = np.arange(touches, -1, -1, dtype=np.float64)
    if rate * touches < 1e-6:
        return distance * left / touches
    # sinh(a) / sinh(b) for 0 <= a <= b, without overflow
    ratio = np.exp(rate * (left - touches)) * np.expm1(-2.0 * rate * left)
    shares: FloatArray = ratio / math.expm1(-2.0 * rate * touches)
    return distance * shares


def _geometric_moments(orders: FloatArray, costs: FloatArray, chance: float) -> FloatArray:
    """Return ln E exp(order sum N_i cost_i), N_i independent failures before a success."""
    exponents = np.outer(orders, costs) + math.log1p(-chance)
    moments = np.full(len(orders), np.inf)
    finite = np.all(exponents < 0.0, axis=1)
    inside = np.log(-np.expm1(exponents[finite]))
    moments[finite] = len(costs) * math.log(chance) - np.sum(inside, axis=1)
    return moments


def _epsilon(moments: FloatArray, delta: float) -> float:
    """Return the least epsilon at `delta` from ln E e^((a - 1) loss) at all a of `_ORDERS`.

    delta <= E e^((a - 1)(loss - epsilon)) (1 - 1/a)^a / (a - 1) (Canonne, Kamath and Steinke 2020,
    arXiv:2004.00010, Proposition 12), which is linear in the moment.
    """
    constants = _ORDERS * np.log1p(-1.0 / _ORDERS) - np.log(_ORDERS - 1.0)
    found = (moments + constants - math.log(delta)) / (_ORDERS - 1.0)
    return max(0.0, float(np.min(found))) * _MARGIN


def _binomial_at_most(successes: int, trials: int, chance: float) -> float:
    """Return the probability of at most so many successes, rounded up."""
    if successes < 0:
        return 0.0
    if successes >= trials:
        return 1.0
    counts = np.arange(successes + 1)
    logs = np.array(
        [-math.lgamma(i + 1.0) - math.lgamma(trials - i + 1.0) for i in counts.tolist()]
    )
    logs += math.lgamma(trials + 1.0) + counts * math.log(chance)
    logs += (trials - counts) * math.log1p(-chance)
    return min(1.0, float(np.sum(np.exp(logs))) * (1.0 + 1e-6))


def _up_to(largest: int) -> list[int]:
    """Return numbers from 1 to `largest`, that too: fewer noises than there are may be counted."""
    decades = math.log10(largest) if largest > 1 else 0.0
    steps = 1 + math.ceil(_CANDIDATES_PER_DECADE * decades)
    return sorted({round(x) for x in np.geomspace(1.0, largest, steps)} | {largest})
