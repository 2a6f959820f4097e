"""One parameter given the noisy sum of a bounded statistic of n records.

Two likelihoods of the sum. Where sum and noise both spread over few integers, the sum's law is
computed exactly, by a discrete Fourier transform of one record's. Elsewhere the sum is taken for
normal with its exact mean and variance, which is right up to its skewness: of order 1/spread there.
In both the noise is exact: a mixture of normals for the Laplace mechanism. The laws are those of
records after cutting to the bounds, so the cut is part of the model.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from shoal_learning.families.noise import SummedNoise
from shoal_learning.families.special import Floats, log_sum_exp

_LONGEST: Final = 512  # integers in the window of an exact law
_ROWS: Final = 64  # parameters whose laws are computed at a time


@dataclass(frozen=True, kw_only=True)
class NoisySum:
    """A sum of n records' statistics plus noise.

    What was seen is `value` + `shift` n, in the statistic's units: the sum if `shift` is what was
    subtracted from each record. n is one of `records`, shape (m,), with log probability
    `log_weights`.
    """

    value: float
    shift: float
    noise: SummedNoise
    records: Floats
    log_weights: Floats

    def sums(self) -> Floats:
        """Return the noisy sum for each possible number of records."""
        return self.value + self.shift * self.records


@dataclass(frozen=True)
class Moments:
    """Mean and variance of one record's statistic, each shape (t,), at t parameters."""

    mean: Floats
    variance: Floats


def normal_log_likelihood(seen: NoisySum, moments: Moments, *, widened: float = 0.0) -> Floats:
    """Return the log likelihood, shape (t,), with the sum taken for normal.

    `widened` adds to the variance: for a density that only has to cover the exact one's bulk.
    """
    weights, variances = seen.noise.normal_mixture()
    total = np.full(len(moments.mean), -np.inf)
    for value, records, log_weight in zip(seen.sums(), seen.records, seen.log_weights, strict=True):
        variance = records * moments.variance[:, None] + variances + widened
        gaps = (value - records * moments.mean)[:, None]
        logs = np.log(weights) - 0.5 * (gaps**2 / variance + np.log(2.0 * math.pi * variance))
        total = np.logaddexp(total, log_sum_exp(logs, 1) + log_weight)
    return total


def exact_window(seen: NoisySum, moments: Moments) -> int | None:
    """Return how many integers an exact law must span, or None if that is too many."""
    records = float(seen.records.max())
    spread = 10.0 * math.sqrt(records * float(moments.variance.max()))
    needed = 2.0 * (seen.noise.reach + spread + 10.0)
    if needed > _LONGEST:
        return None
    return int(2 ** math.ceil(math.log2(needed)))


def exact_log_likelihood(seen: NoisySum, masses: Floats, window: int) -> Floats:
    """Return the log likelihood, shape (t,), of a sum of integers.

    `masses`, shape (t, u + 1), are one record's on 0 to u. The law of the sum modulo `window` is
    the inverse transform of the n-th power; the window lies around the sum's mean, where the law
    wraps round by nothing that counts.
    """
    total = np.full(len(masses), -np.inf)
    for value, records, log_weight in zip(seen.sums(), seen.records, seen.log_weights, strict=True):
        logs = _exact_of(seen, float(value), float(records), masses, window)
        total = np.logaddexp(total, logs + log_weight)
    return total


def _exact_of(seen: NoisySum, value: float, records: float, masses: Floats, window: int) -> Floats:
    """Return the exact log likelihood, shape (t,), of so many records."""
    angles = -2.0j * math.pi / window * np.arange(window // 2 + 1)
    wave = np.exp(np.arange(masses.shape[1])[:, None] * angles)
    places = np.arange(window)
    result = np.empty(len(masses))
    for start in range(0, len(masses), _ROWS):
        part = masses[start : start + _ROWS]
        characteristic = (part @ wave) ** records
        law = np.maximum(np.fft.irfft(characteristic, window, axis=1), 0.0)
        means = records * (part @ np.arange(part.shape[1]))
        lowest = np.rint(means)[:, None] - window // 2
        sums = lowest + np.mod(places - lowest, window)
        possible = (sums >= 0.0) & (sums <= records * (part.shape[1] - 1))
        logs = np.where(possible, seen.noise.log_density(value - sums), -np.inf)
        top = logs.max()  # where the noise is finer than a record all densities may underflow
        with np.errstate(divide="ignore"):
            total = np.log(np.sum(law * np.exp(logs - top), axis=1))
        result[start : start + _ROWS] = total + top
    return result
