"""Poisson rates and normal means from a noisy sum of records that bounds have cut.

The law of one cut record is known for each parameter, so the cut is part of the model.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from shoal_protocol.queries import FirstMoments
from shoal_protocol.queries.design import Floats
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.measurements import query_of, record_count, record_law
from shoal_studies.catalogue.single_numbers import (
    NormalMeanPosterior,
    NormalMeanTask,
    PoissonPosterior,
    PoissonTask,
    VectorSumPosterior,
    VectorSumTask,
)
from shoal_studies.families.one_round import (
    LogDensity,
    OneRound,
    SummedNoise,
    bulk,
    log_gamma,
    log_sum_exp,
    noise_of,
    normal_cdf,
    normal_density,
    record_counts,
    summarise,
)
from shoal_studies.posteriors.forms import encoded

# One parameter given the noisy sum of a bounded statistic of n records.
#
# Two likelihoods of the sum. Where sum and noise both spread over few integers, the sum's law is
# computed exactly, by a discrete Fourier transform of one record's. Elsewhere the sum is taken for
# normal with its exact mean and variance, which is right up to its skewness: of order 1/spread
# there. In both the noise is exact: a mixture of normals for the Laplace mechanism. The laws are
# those of records after cutting to the bounds, so the cut is part of the model.

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


_LOWEST_LOG_RATE: Final = -700.0


class Poisson(OneRound[PoissonTask, PoissonPosterior]):
    """The learner of one `PoissonTask`."""

    def posterior(self, released: ReleasedSum) -> PoissonPosterior:
        shape, rate = self.task.prior_shape, self.task.prior_rate
        rate = 2.0 * shape / self.task.upper if rate is None else rate
        # The prior's own bulk, in log rates: nothing that was seen can widen it.
        low = max(math.log(shape / rate) - 45.0 / min(shape, 1.0), _LOWEST_LOG_RATE)
        summary = _summary(
            _noisy_sum(released, normalised=False),
            lambda logs: shape * logs - rate * np.exp(logs),
            _CutPoisson(query_of(released, FirstMoments)),
            (low, math.log((60.0 + 4.0 * shape) / rate)),
            np.exp,
        )
        return PoissonPosterior(
            columns=(self.task.column,),
            records=record_count(released),
            **summary,
        )


class NormalMean(OneRound[NormalMeanTask, NormalMeanPosterior]):
    """The learner of one `NormalMeanTask`."""

    def posterior(self, released: ReleasedSum) -> NormalMeanPosterior:
        bounds, task = self.task.column, self.task
        centre, unit = bounds.centre, bounds.half_range
        mean = 0.0 if task.prior_mean is None else (task.prior_mean - centre) / unit
        sd = 1.0 if task.prior_sd is None else task.prior_sd / unit
        summary = _summary(
            _noisy_sum(released, normalised=True),
            lambda means: -0.5 * ((means - mean) / sd) ** 2,
            _CutNormal(task.sd / unit),
            (mean - 9.0 * sd, mean + 9.0 * sd),
            lambda means: centre + unit * means,
        )
        return NormalMeanPosterior(
            columns=(bounds.name,),
            known_sd=task.sd,
            records=record_count(released),
            **summary,
        )


class _CutPoisson:
    """A Poisson count, the rate given by its logarithm; everything above the bound is the bound.

    `widening` is added to the variance of a sum while its density's bulk is looked for.
    """

    widening = 1.0  # of one count: where few are expected a normal law's tails are too thin

    def __init__(self, query: FirstMoments) -> None:
        [column] = query.columns
        self._upper = round(2.0 * column.scale)
        counts = np.arange(self._upper + 1, dtype=np.float64)
        single = query.model_copy(update={"records_per_client": len(counts)})
        # What the grid makes of each count: rounding to it moves large sums by more than nothing.
        self._values = (
            column.centre + column.scale * single.rows(counts[:, None])[:, 0] / query.grid
        )
        self._counts, self._log_factorials = counts, log_gamma(counts + 1.0)

    def masses(self, parameters: Floats) -> Floats:
        """Return the masses of 0 to the bound, shape (t, u + 1)."""
        logs = np.outer(parameters, self._counts) - self._log_factorials
        masses = np.exp(logs - np.exp(parameters)[:, None])
        masses[:, -1] = np.maximum(1.0 - masses[:, :-1].sum(axis=1), 0.0)
        return np.asarray(masses)

    def moments(self, parameters: Floats) -> Moments:
        """Return mean and variance of a count, each shape (t,)."""
        masses = self.masses(parameters)
        mean = masses @ self._values
        return Moments(mean, (masses * (self._values - mean[:, None]) ** 2).sum(axis=1))


@dataclass(frozen=True)
class _CutNormal:
    """A normal record, by its mean, cut to [-1, 1]."""

    sd: float
    widening: float = 0.0

    def masses(self, parameters: Floats) -> None:
        """Return None: it is no integer."""

    def moments(self, parameters: Floats) -> Moments:
        """Return mean and variance of the cut record, each shape (t,)."""
        below, above = (-1.0 - parameters) / self.sd, (1.0 - parameters) / self.sd
        under, over = normal_cdf(below), normal_cdf(-above)
        inside = np.maximum(1.0 - under - over, 0.0)
        falls = normal_density(below), normal_density(above)
        # About the parameter, where nothing cancels: first and second moment inside the bounds.
        first = self.sd * (falls[0] - falls[1])
        second = self.sd**2 * (inside + below * falls[0] - above * falls[1])
        left, right = -1.0 - parameters, 1.0 - parameters
        shift = first + under * left + over * right
        square = second + under * left**2 + over * right**2
        return Moments(parameters + shift, np.maximum(square - shift**2, 0.0))


def _noisy_sum(released: ReleasedSum, *, normalised: bool) -> NoisySum:
    """Return the sum of the column, in normalised units or in its own."""
    query = query_of(released, FirstMoments)
    [column] = query.columns
    centre, unit = (0.0, 1.0) if normalised else (column.centre, column.scale)
    records, log_weights = record_counts(released)
    return NoisySum(
        value=unit * float(released.values[0]) / query.grid**2,
        shift=centre,
        noise=noise_of(released, 0, query.grid**2 / unit),
        records=records,
        log_weights=log_weights,
    )


def _summary(
    seen: NoisySum,
    log_prior: LogDensity,
    law: _CutPoisson | _CutNormal,
    edges: tuple[float, float],
    parameter: Callable[[Floats], Floats],
) -> dict[str, Any]:
    """Return the posterior of a parameter with mass between `edges`."""

    def rough(points: Floats) -> Floats:
        likelihood = normal_log_likelihood(seen, law.moments(points), widened=law.widening)
        return log_prior(points) + likelihood

    low, high = bulk(rough, *edges)
    window = exact_window(seen, law.moments(np.linspace(low, high, 33)))

    def log_density(points: Floats) -> Floats:
        masses = None if window is None else law.masses(points)
        if window is None or masses is None:
            return log_prior(points) + normal_log_likelihood(seen, law.moments(points))
        return log_prior(points) + exact_log_likelihood(seen, masses, window)

    return summarise(log_density, low, high, parameter)


class VectorSums(OneRound[VectorSumTask, VectorSumPosterior]):
    """The learner of one `VectorSumTask`."""

    def posterior(self, released: ReleasedSum) -> VectorSumPosterior:
        query = self.task.query()
        noise = SummedNoise(mechanism=released.mechanism, sd=1.0, shape=released.surplus)
        law = summarise(noise.log_density, -noise.reach, noise.reach, np.asarray)
        records, sd = record_law(released)
        return VectorSumPosterior(
            names=query.column_names,
            records=max(1, round(records)),
            bounds=self.task.columns,
            sums=encoded(released.values[:-1] / query.grid**2),
            noise_sd=float(released.noise_sd[0]) / query.grid**2,
            quantiles=law["quantiles"],
            record_count=max(1.0, records),
            record_count_sd=sd,
        )
