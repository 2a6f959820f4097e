"""Computes the privacy cost of a shift under the sum of several Laplace noises; pure numerics.

In units of the noise's scale the sum of T Laplace variables is, where it is positive, a sum of
exponentials: of T pairs of them, raced against each other, r on the positive side are left with
probability C(2T - r - 1, T - r) 2^-(2T - r). So tails are sums of positive terms, without transform
or grid. The density is log-concave, so the hockey-stick divergence of the sum and its shift is
reached on a half-line. Results are rounded up: a delta or epsilon is never below the true one.
"""

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.privacy.mechanisms import (
    require_at_least_zero,
    require_positive,
    require_probability,
)

MOST_ADDITIONS: Final = 100_000

_ROUNDING: Final = 1e-9  # relative, of a tail: far above what sums of logarithms lose
_BISECTIONS: Final = 100
_LOG_LATTICE_FAILURE: Final = 40.0

FloatArray = NDArray[np.float64]


def laplace_sum_delta(*, epsilon: float, shift: float, additions: int) -> float:
    """Return delta at `epsilon` of the sum of `additions` Laplace noises, against its shift.

    `shift` is in scales of the noise: a clipped step's largest change over the scale is the
    epsilon of one contribution. It is never below the true
    sup over events of Q(A) - e^epsilon P(A), P the sum and Q = P + shift.

    Raises:
        ValueError: an argument is negative or not finite, or `additions` is not within
            1, ..., `MOST_ADDITIONS`.
    """
    require_at_least_zero("epsilon", epsilon)
    require_at_least_zero("shift", shift)
    noise = _LaplaceSum.of(additions)
    if shift <= epsilon:
        return 0.0  # one Laplace noise alone is `shift`-private
    low, high = noise.crossing(epsilon, shift)
    # the best event begins between the two, so this is at least what it reaches
    hit, alarm = noise.tail(low - shift), math.exp(epsilon) * noise.tail(high)
    return min(1.0, max(0.0, hit - alarm + _ROUNDING * (hit + alarm)))


def laplace_sum_epsilon(*, delta: float, shift: float, additions: int) -> float:
    """Return the smallest epsilon at `delta`: the inverse of `laplace_sum_delta`, rounded up.

    Raises:
        ValueError: as there, or `delta` is not strictly within (0, 1).
    """
    require_probability(delta)
    low, high = 0.0, shift
    if laplace_sum_delta(epsilon=0.0, shift=shift, additions=additions) <= delta:
        return 0.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if laplace_sum_delta(epsilon=middle, shift=shift, additions=additions) <= delta:
            high = middle
        else:
            low = middle
        if high - low <= 1e-9 * high:
            break
    return high


def lattice_shift(*, shift: int, scale: float, additions: int) -> float:
    """Return a shift of continuous noise that costs at least what `shift` does on the lattice.

    A Laplace variable of this `scale` is a discrete one plus the difference of two independent
    fractions, within (-1, 1) and of mean 0. So the tails of both sums are within v of each other
    with v = sqrt(2 T 40), but for a probability of 2 exp(-40) (Hoeffding): a shift by
    `shift` + 2 v covers it. In scales of the noise, as above; `LATTICE_FAILURE` is to be added
    to what delta that gives.

    Raises:
        ValueError: an argument is not positive.
    """
    require_positive("scale", scale)
    if shift < 1 or additions < 1:
        raise ValueError("shift and additions must be positive")
    # a difference of T fractions is never T or more, either
    reach = min(float(additions), math.sqrt(2.0 * _LOG_LATTICE_FAILURE * additions))
    return (shift + 2.0 * reach) / scale


LATTICE_FAILURE: Final = 2.0 * math.exp(-_LOG_LATTICE_FAILURE)
"""Added to delta, times 1 + e^epsilon, where `lattice_shift` was used."""


class _LaplaceSum:
    """The sum of T Laplace variables of scale 1."""

    def __init__(self, additions: int) -> None:
        """Prepare the weights of all terms; use `of`, which keeps them."""
        # ln i! for i < 2T
        self._log_factorials = np.array([math.lgamma(i + 1.0) for i in range(2 * additions)])
        left = np.arange(1, additions + 1)
        flips = 2 * additions - left
        logs = self._log_factorials[flips - 1] - self._log_factorials[additions - left]
        logs -= self._log_factorials[additions - 1] + flips * math.log(2.0)
        self._left = np.exp(logs)  # of r = 1, ..., T exponentials
        self._more_left = np.cumsum(self._left[::-1])[::-1]  # of more than i = 0, ..., T - 1
        self._counts = np.arange(additions, dtype=np.float64)
        self._log_factorials = self._log_factorials[:additions]

    @staticmethod
    @lru_cache(maxsize=16)
    def of(additions: int) -> "_LaplaceSum":
        """Return it, prepared once.

        Raises:
            ValueError: the number is not within 1, ..., `MOST_ADDITIONS`.
        """
        if not 1 <= additions <= MOST_ADDITIONS:
            raise ValueError(f"additions must be within 1, ..., {MOST_ADDITIONS}")
        return _LaplaceSum(additions)

    def _poisson(self, x: float) -> FloatArray:
        """Return e^-x x^i / i! for i = 0, ..., T - 1."""
        if x == 0.0:
            first = np.zeros_like(self._counts)
            first[0] = 1.0
            return first
        exponents = self._counts * math.log(x) - x - self._log_factorials
        terms: FloatArray = np.exp(exponents)
        return terms

    def tail(self, x: float) -> float:
        """Return the probability that it exceeds `x`."""
        if x < 0.0:
            return 1.0 - self.tail(-x)
        return float(self._poisson(x) @ self._more_left)

    def density(self, x: float) -> float:
        """Return its density at `x`."""
        return float(self._poisson(abs(x)) @ self._left)

    def crossing(self, epsilon: float, shift: float) -> tuple[float, float]:
        """Return x, from below and above, from which on Q's density is above e^epsilon P's.

        The ratio rises with x, from shift / 2, where it is 1, on to e^shift.
        """
        factor = math.exp(epsilon)

        def is_beyond(x: float) -> bool:
            return self.density(x - shift) >= factor * self.density(x)

        low, high = 0.5 * shift, shift + 1.0
        while not is_beyond(high) and self.density(high) > 0.0:
            low, high = high, 2.0 * high
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            if is_beyond(middle):
                high = middle
            else:
                low = middle
            if high - low <= 1e-14 * high:
                break
        return low, high
