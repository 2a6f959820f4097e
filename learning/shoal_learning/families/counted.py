"""Bernoulli and categorical variables from noisy counts: exact under Beta and Dirichlet priors.

The posterior is a mixture over the true counts, weighed by their Beta-binomial or
Dirichlet-multinomial probability times the density of the noise that they leave.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shoal_learning.contract import RequestedRound
from shoal_learning.families.counts import NoisyCounts, count_law, draw_counts
from shoal_learning.families.densities import Summary, bulk, summarise
from shoal_learning.families.round import ask_or_take, generator_for, noise_of
from shoal_learning.families.special import Floats, log_gamma, log_sum_exp
from shoal_protocol.posteriors import BernoulliPosterior, CategoricalPosterior
from shoal_protocol.queries import Counts
from shoal_protocol.questions import ReleasedSum
from shoal_protocol.tasks import BernoulliTask, CategoricalTask

_MOST_COMPONENTS: Final = 512
_MOST_NUMBERS: Final = 40_000  # in a posterior: a report is at most a mebibyte


@dataclass(frozen=True)
class Bernoulli:
    """The learner of one `BernoulliTask`."""

    task: BernoulliTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | BernoulliPosterior:
        """Return the round, or the posterior when `sums` hold it.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's round.
        """
        released = ask_or_take(self.task, population, sums)
        if isinstance(released, RequestedRound):
            return released
        noisy = _noisy_counts(released)
        prior = np.array([self.task.prior_successes, self.task.prior_failures])
        if released.query.records_per_client == 1:
            noisy = NoisyCounts(
                values=np.append(noisy.values, 0.0),
                noise=noisy.noise,
                seen=(True, False),
                fewest=noisy.fewest,
                most=noisy.most,
            )
            successes, weights = count_law(noisy, prior)
            failures = noisy.most - successes
        else:
            counts = draw_counts(noisy, prior, 4 * _MOST_COMPONENTS, generator_for(released))
            successes, failures = counts.T
            weights = np.full(len(counts), 1.0 / len(counts))
        summary = _beta_mixture(successes + prior[0], failures + prior[1], weights)
        return BernoulliPosterior(
            column=self.task.column,
            quantiles=tuple(summary.quantiles.tolist()),
            average=summary.mean,
            deviation=summary.sd,
            records=round(float(weights @ (successes + failures))),
        )


@dataclass(frozen=True)
class Categorical:
    """The learner of one `CategoricalTask`."""

    task: CategoricalTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | CategoricalPosterior:
        """Return the round, or the posterior when `sums` hold it.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's round.
        """
        released = ask_or_take(self.task, population, sums)
        if isinstance(released, RequestedRound):
            return released
        noisy = _noisy_counts(released)
        cells = len(noisy.values)
        draws = min(_MOST_COMPONENTS, _MOST_NUMBERS // cells)
        prior = np.full(cells, self.task.concentration)
        counts = np.rint(draw_counts(noisy, prior, draws, generator_for(released)))
        names = [f"{level:.15g}" for level in self.task.levels]
        return CategoricalPosterior(
            column=self.task.column,
            names=(*names, "other") if self.task.other else tuple(names),
            counts=tuple(tuple(row) for row in counts.astype(np.int64).tolist()),
            concentration=self.task.concentration,
            records=max(1, round(float(counts.sum(axis=1).mean()))),
        )


def _noisy_counts(released: ReleasedSum) -> NoisyCounts:
    query = released.query
    if not isinstance(query, Counts):
        raise ValueError("counts are asked by the query of that name")
    return NoisyCounts(
        values=query.counts_from(released.values),
        noise=noise_of(released, 0, query.grid),
        seen=(True,) * query.dimension,
        fewest=released.cohort_size,
        most=released.cohort_size * query.records_per_client,
    )


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
