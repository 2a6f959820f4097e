"""Bernoulli and categorical variables from noisy counts: exact under Beta and Dirichlet priors.

The posterior is a mixture over the true counts, weighed by their Beta-binomial or
Dirichlet-multinomial probability times the density of the noise that they leave.
"""

import math
from typing import Final

import numpy as np

from shoal_learning.families.counts import NoisyCounts, draw_counts
from shoal_learning.families.densities import Summary, bulk, summarise
from shoal_learning.families.round import OneRound, generator_for, noise_of, record_counts
from shoal_learning.families.special import Floats, log_gamma, log_sum_exp
from shoal_protocol.posteriors.forms import DirichletMixture
from shoal_protocol.queries import CellCounts
from shoal_protocol.queries.sums import counts_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.studies.cells import CellStudy
from shoal_protocol.studies.single_numbers import BernoulliPosterior, BernoulliTask

_MOST_COMPONENTS: Final = 512
_NODES: Final = 61  # numbers of records, and
_RESOLUTION: Final = 12.0  # of successes in one standard deviation of the noise
_NEGLIGIBLE: Final = 1e-9
_MOST_NUMBERS: Final = 40_000  # in a posterior: a report is at most a mebibyte


class Bernoulli(OneRound[BernoulliTask, BernoulliPosterior]):
    """The learner of one `BernoulliTask`."""

    def posterior(self, released: ReleasedSum) -> BernoulliPosterior:
        prior = np.array([self.task.prior_successes, self.task.prior_failures])
        successes, failures, weights = _successes(released, prior)
        summary = _beta_mixture(successes + prior[0], failures + prior[1], weights)
        return BernoulliPosterior(
            column=self.task.column,
            quantiles=tuple(summary.quantiles.tolist()),
            average=summary.mean,
            deviation=summary.sd,
            records=max(1, round(float(weights @ (successes + failures)))),
        )


class Cells(OneRound[CellStudy, DirichletMixture]):
    """The learner of a study of the probabilities of cells."""

    def posterior(self, released: ReleasedSum) -> DirichletMixture:
        noisy = _noisy_counts(released)
        cells = len(noisy.values)
        draws = min(_MOST_COMPONENTS, _MOST_NUMBERS // cells)
        prior = np.full(cells, self.task.concentration)
        counts = np.rint(draw_counts(noisy, prior, draws, generator_for(released)))
        return self.task.posterior(counts.astype(np.int64))


def _counts(released: ReleasedSum) -> CellCounts:
    if not isinstance(released.query, CellCounts):
        raise ValueError("counts are asked by a query of counts")
    return released.query


def _noisy_counts(released: ReleasedSum) -> NoisyCounts:
    query = _counts(released)
    return NoisyCounts(
        values=counts_from(query, released.values)[:-1],
        noise=noise_of(released, 0, query.grid),
        total=float(counts_from(query, released.values)[-1]),
        total_noise=noise_of(released, -1, query.grid),
        most=released.cohort_size * query.records_per_client,
    )


def _successes(released: ReleasedSum, prior: Floats) -> tuple[Floats, Floats, Floats]:
    """Return possible numbers of successes and failures, and their probabilities, shapes (m,).

    The law of both given their noisy difference and their noisy sum: for each number of records,
    of which there are as many nodes as tell it well, that of the successes is beta-binomial, times
    the density of the noise that they leave in the difference.
    """
    grid = _counts(released).grid
    noise, difference = noise_of(released, 0, grid), float(released.values[0]) / grid
    parts = []
    for records, log_weight in zip(*record_counts(released, _NODES), strict=True):
        step = max(1.0, noise.sd / _RESOLUTION)
        centre = min(max((records + difference) / 2.0, 0.0), records)
        reach = 0.5 * noise.reach + 1.0
        low, high = max(centre - reach, 0.0), min(centre + reach, records)
        low = step * math.floor(low / step)
        successes = np.minimum(np.arange(low, high + step, step), records)
        logs = noise.log_density(difference - (2.0 * successes - records)) + log_weight
        failures = records - successes
        for counts, alpha in zip((successes, failures), prior, strict=True):
            logs = logs + log_gamma(counts + alpha) - log_gamma(counts + 1.0)
        both = np.array([records])
        logs = logs + log_gamma(both + 1.0) - log_gamma(both + prior.sum()) + math.log(step)
        parts.append((successes, failures, logs))
    successes, failures, logs = (np.concatenate(each) for each in zip(*parts, strict=True))
    weights = np.exp(logs - log_sum_exp(logs, 0))
    kept = weights > _NEGLIGIBLE
    return successes[kept], failures[kept], weights[kept] / weights[kept].sum()


def _beta_mixture(first: Floats, second: Floats, weights: Floats) -> Summary:
    """Return the summary of the mixture of Beta(first, second), in the logits of its variable."""
    norms = log_gamma(first + second) - log_gamma(first) - log_gamma(second) + np.log(weights)

    def log_density(logits: Floats) -> Floats:
        success = -np.logaddexp(0.0, -logits)
        failure = -np.logaddexp(0.0, logits)
        return log_sum_exp(norms + np.outer(success, first) + np.outer(failure, second), 1)

    edges = _logit_range(first, second)
    summary = summarise(log_density, *bulk(log_density, *edges), _logistic)
    # Mean and variance of the mixture in closed form, to the last digit.
    shares = first / (first + second)
    mean = float(weights @ shares)
    within = shares * (1.0 - shares) / (first + second + 1.0)
    return Summary(
        mean, float(np.sqrt(weights @ (within + (shares - mean) ** 2))), summary.quantiles
    )


def _logit_range(first: Floats, second: Floats) -> tuple[float, float]:
    """Return logits beyond which no component has mass: a Beta's tails are exponential there."""
    low = np.log(first / second).min() - 45.0 / min(1.0, float(first.min()))
    high = np.log(first / second).max() + 45.0 / min(1.0, float(second.min()))
    return float(max(low, -700.0)), float(min(high, 700.0))


def _logistic(logits: Floats) -> Floats:
    return np.asarray(np.exp(-np.logaddexp(0.0, -logits)))
