"""Predicts each weight's pull and noise under a crowd task, from public guesses alone.

Translates the task's clip, noise and learning rate into the terms of `theory`: a GLM near its
optimum pulls weight j by learning_rate times (slope times the mean square of x_j, + l2) whenever it
is touched; slope is the mean of mu'(x'b). The guesses are the mean squares of normalised features,
the slope, and the variance of a score.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_learning.crowds.theory import Contraction, price_of_instances
from shoal_protocol.crowds.tasks import CrowdTask

FloatVector = NDArray[np.float64]

UNIFORM: Final = 1.0 / 3.0
"""Mean square of a feature that is spread evenly over its bounds."""

MUCH_LEFT: Final = 0.1
"""Part of the start's error from which on a model's summary says that it is still there."""


def contractions(
    task: CrowdTask,
    *,
    slope: float,
    mean_squares: float | Sequence[float] = UNIFORM,
    score_variance: float = 0.0,
) -> tuple[Contraction, ...]:
    """Return the pull and noise variance of each of the p weights, the intercept first if any.

    `mean_squares` are the features', shape (m,) or the same for all; the intercept's is 1.
    `score_variance` is that of y - mean(x'b) at the optimum, on the scale of targets in which the
    task learns; it counts as far as the clip lets it through. Shrinkage by l2 is not an error here.

    Raises:
        ValueError: a pull is too strong for the formulas, or a guess is not positive.
    """
    squares = np.broadcast_to(np.asarray(mean_squares, dtype=np.float64), len(task.features))
    if not (0.0 < slope and 0.0 < squares.min() and squares.max() <= 1.0 and score_variance >= 0.0):
        raise ValueError(
            "guess a slope above 0, mean squares in (0, 1] and a score's variance of 0 or more"
        )
    touched = task.touched / task.dimension
    found = []
    for square in [*([1.0] if task.intercept else []), *squares]:
        own = min(task.learning_rate**2 * score_variance * square, task.clip**2)
        found.append(
            Contraction(
                instances=task.instances,
                update_variance=task.update_variance + touched * float(own),
                pull=touched * task.learning_rate * (slope * float(square) + task.l2),
                touched=touched,
            )
        )
    return tuple(found)


def slope_at(task: CrowdTask, intercept: float) -> float:
    """Return mu'(b_0): the slope of the mean at an average record, for a guess of it.

    A linear model's is 1; a logistic one's at most 1/4; a Poisson one's the count itself.
    """
    if task.family == "linear":
        return 1.0
    if task.family == "logistic":
        return 0.25 / math.cosh(min(abs(intercept), 50.0) / 2.0) ** 2
    return math.exp(min(intercept, math.log(task.target.upper)))


def facts(
    learning: Callable[[], Sequence[Contraction]], contributions: int
) -> tuple[tuple[str, str], ...]:
    """Return named facts: the error from noise alone, and whether much of the start is left.

    `learning` returns each weight's contraction, or raises a ValueError where the formulas end.
    """
    try:
        weights = learning()
    except ValueError:
        return (("Error", "the learning rate is too high for the formulas: nothing is expected"),)
    noise = math.sqrt(math.fsum(each.averaged_variance for each in weights) / len(weights))
    found = [
        (
            "Error by noise alone",
            f"{noise:.3g} on the normalised scale, for evenly spread features and a start that is"
            " forgotten; sampling and clipping come on top of it",
        )
    ]
    left = max(each.pulled(contributions) for each in weights)
    if contributions and left > MUCH_LEFT:
        found.append(
            (
                "Too early",
                f"of what the start was off by, up to {left:.0%} is still there, and more if draws"
                " overlapped: take more contributions, fewer instances or a higher learning rate",
            )
        )
    return tuple(found)


def price_in_words(instances: int, contributions: int) -> str:
    """Return what so many instances cost in accuracy at so many contributions, as a sentence."""
    if instances == 1:
        return "a single instance: nothing is discarded, and nothing is averaged"
    kept = f"{instances} instances keep 1 of {instances} updates in the long run; "
    if contributions == 0:
        return kept + "nobody contributed, so they are all as at the start"
    try:
        ratio = price_of_instances(instances, contributions=contributions)
    except ValueError:
        return kept + "so few contributions cannot teach that many: take fewer instances"
    return kept + (
        "from as many contributions, a single one at a learning rate that fits it would have"
        f" 1/{ratio:.3g} of the variance"
    )
