"""Whether two things go together, or a sum is as large as it should be: by tests at one level.

Pairs of measurements: exact, and robust against drift.

Of two measurements taken one right after the other it counts which is larger, and whether that of
another quantity is too. If the quantities have nothing to do with each other, each pair agrees
with probability 1/2, whatever their distributions: so the number that agree is binomial, and the
test exact. Outliers count no more than others, and slow changes of the machine not at all.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

FALSE_ALARM: Final = 1e-6
"""Probability with which a test calls a coincidence a leak."""


def pairs_of(first: Sequence[float], second: Sequence[float]) -> tuple[int, int]:
    """Return of how many disjoint neighbouring pairs the order agrees, and of how many at all.

    `first` and `second` are two quantities of the same measurements. Ties say nothing.

    Raises:
        ValueError: they are not as many.
    """
    if len(first) != len(second):
        raise ValueError("both quantities must be measured each time")
    signs = [
        (first[place + 1] - first[place]) * (second[place + 1] - second[place])
        for place in range(0, len(first) - 1, 2)
    ]
    return sum(sign > 0 for sign in signs), sum(sign != 0 for sign in signs)


def larger_of(pairs: Iterable[tuple[float, float]]) -> tuple[int, int]:
    """Return in how many pairs the first is larger, and in how many they differ."""
    differ = [one > other for one, other in pairs if one != other]
    return sum(differ), len(differ)


def p_value(agree: int, of: int) -> float:
    """Return the probability that a fair coin is as far from half as `agree` in `of` throws.

    Raises:
        ValueError: `agree` is not a number of throws.
    """
    if not 0 <= agree <= of:
        raise ValueError("agree must be between 0 and of")
    extreme = min(agree, of - agree)
    tail = sum(math.comb(of, each) for each in range(extreme + 1))
    return min(1.0, 2 * tail / (1 << of))  # of whole numbers, which may be beyond any float


def least_share(of: int) -> float:
    """Return from which share of agreeing pairs on `of` pairs are called a leak.

    Raises:
        ValueError: so few pairs never are.
    """
    for agree in range((of + 1) // 2, of + 1):
        if p_value(agree, of) < FALSE_ALARM:
            return agree / of
    raise ValueError(f"{of} pairs are too few for a test at {FALSE_ALARM:g}")


def gamma_bound(total: float, shape: float) -> float:
    """Bound the probability that a Gamma(shape) variable of mean `shape` is as far as `total`.

    On either side of the mean it is at most (t e^(1 - t))^shape, t = total / shape (Chernoff).

    Raises:
        ValueError: `shape` is not positive, or `total` negative.
    """
    if not shape > 0.0 or not total >= 0.0:
        raise ValueError("shape must be positive, and total not negative")
    if total == 0.0:
        return 0.0
    ratio = total / shape
    return min(1.0, 2.0 * math.exp(shape * (math.log(ratio) + 1.0 - ratio)))
