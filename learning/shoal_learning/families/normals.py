"""Normal means and covariances from noisy second moments: the learners of both normal families.

The moments are those of normalised records with a constant k: k times a column's sum is off the
diagonal of the matrix. The number of records is seen through noise: chains of several numbers are
mixed, by what the noisy count says of each. What the moments themselves say of it is not used.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from shoal_learning.contract import RequestedRound
from shoal_learning.families.conjugate import NormalDraws, NormalInverseWishart
from shoal_learning.families.round import (
    OneRound,
    PosteriorT,
    generator_for,
    noise_of,
    record_counts,
)
from shoal_learning.families.scatter import (
    CHAINS,
    STRATA,
    NoisyScatter,
    draw_normals,
    fewest_records,
)
from shoal_learning.families.special import Floats
from shoal_protocol.posteriors.forms import thinned
from shoal_protocol.queries import SecondMomentMatrix
from shoal_protocol.queries.sums import matrix_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.studies.measurements import record_count
from shoal_protocol.studies.normals import (
    MultivariateNormalPosterior,
    MultivariateNormalTask,
    NormalPosterior,
    NormalTask,
)

NormalT = TypeVar("NormalT", bound=NormalTask | MultivariateNormalTask)

_REPORTED_CHAINS: Final = 8
_MOST_KINKED: Final = 3  # columns


class _Normals(OneRound[NormalT, PosteriorT]):
    """Base of both learners."""

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | PosteriorT:
        """As `OneRound`.

        Raises:
            ValueError: `population` is too small, or `sums` do not answer this task's round.
            NoConvergence: the sampler's chains disagree; no posterior is reported.
        """
        refuse_few(self.task, population)
        return super().next(population, sums)


class Normal(_Normals[NormalTask, NormalPosterior]):
    """The learner of one `NormalTask`."""

    def posterior(self, released: ReleasedSum) -> NormalPosterior:
        task = self.task
        draws, divergences = _draws(
            task, released, [task.prior_mean], [task.prior_sd], task.prior_freedom
        )
        return NormalPosterior.of(
            task.column.name, draws, divergences=divergences, records=record_count(released)
        )


class MultivariateNormal(_Normals[MultivariateNormalTask, MultivariateNormalPosterior]):
    """The learner of one `MultivariateNormalTask`."""

    def posterior(self, released: ReleasedSum) -> MultivariateNormalPosterior:
        task = self.task
        none = [None] * len(task.variables)
        freedom = len(none) + 2.0 if task.prior_freedom is None else task.prior_freedom
        draws, divergences = _draws(
            task, released, task.prior_means or none, task.prior_sds or none, freedom
        )
        names = tuple(column.name for column in task.variables)
        return MultivariateNormalPosterior.of(
            names, draws, divergences=divergences, records=record_count(released)
        )


def refuse_few(task: NormalTask | MultivariateNormalTask, population: int) -> None:
    """Refuse a job, before it costs anything, whose records cannot tell a covariance.

    Raises:
        ValueError: there are fewer than twice the number of columns and four more.
    """
    fewest = fewest_records(len(task.columns))
    if population < fewest:
        raise ValueError(f"a covariance of this size needs {fewest} clients or more")


def normalised_prior(
    task: NormalTask | MultivariateNormalTask,
    means: Sequence[float | None],
    sds: Sequence[float | None],
    freedom: float,
) -> NormalInverseWishart:
    """Return the prior for columns that their bounds have taken to [-1, 1].

    `sds` are those of a covariance that is the prior's scatter over its degrees of freedom.
    """
    centres = [
        0.0 if mean is None else (mean - column.centre) / column.half_range
        for mean, column in zip(means, task.columns, strict=True)
    ]
    scales = [
        1.0 / 3.0 if sd is None else sd / column.half_range
        for sd, column in zip(sds, task.columns, strict=True)
    ]
    return NormalInverseWishart(
        location=np.array(centres),
        mean_records=task.prior_mean_records,
        freedom=freedom,
        scatter=freedom * np.diag(np.square(scales)),
    )


def noisy_scatter(released: ReleasedSum) -> NoisyScatter:
    """Return the noisy moments of one group of chains, each stratum with its number of records.

    With more than three columns Laplace noise enters by its variance alone, as if it were normal:
    the sampler cannot follow so many kinks.

    Raises:
        ValueError: `released` does not answer the query of that name with a constant.
    """
    query = released.query
    if not isinstance(query, SecondMomentMatrix) or not query.constant:
        raise ValueError("a normal family needs the matrix of second moments with a constant")
    matrix = matrix_from(query, released.values)
    laws = [noise_of(released, place, query.grid**2) for place in (0, -2)]
    if len(query.columns) > _MOST_KINKED:
        laws = [replace(law, mechanism="discrete_gaussian") for law in laws]
    square_noise, cross_noise = laws
    constant = query.constant / query.grid
    return NoisyScatter(
        sums=matrix[None, 0, 1:] / constant,
        squares=matrix[None, 1:, 1:],
        sum_noise=replace(cross_noise, sd=cross_noise.sd / constant),
        square_noise=square_noise,
        cross_noise=cross_noise,
        records=np.repeat(_numbers_of_records(released), CHAINS // STRATA)[None],
    )


def _numbers_of_records(released: ReleasedSum) -> Floats:
    """Return how many records there may be, as many equally likely numbers as there are strata.

    Their prior is 1 / (n + 1): of none, a few that noise leaves possible would narrow a wide prior.
    """
    numbers, log_weights = record_counts(released, log_uniform=True)
    weights = np.exp(log_weights)
    places = (np.arange(STRATA) + 0.5) / STRATA
    middles = np.cumsum(weights) - 0.5 * weights
    return np.asarray(np.expm1(np.interp(places, middles, np.log1p(numbers))))


def _draws(
    task: NormalTask | MultivariateNormalTask,
    released: ReleasedSum,
    means: Sequence[float | None],
    sds: Sequence[float | None],
    freedom: float,
) -> tuple[Floats, int]:
    """Return draws of the parameters, shape (chains, draws, k), and the sampler's divergences.

    The sampler's many chains are strung together to eight, in each of which all strata take turns.
    """
    generator = generator_for(released)
    drawn = draw_normals(
        noisy_scatter(released), normalised_prior(task, means, sds, freedom), generator
    )
    parameters = _in_data_units(task, drawn)
    kept = np.moveaxis(thinned(np.moveaxis(parameters, 1, 0)), 1, 0)
    strata = kept.reshape(len(kept), STRATA, -1, _REPORTED_CHAINS, kept.shape[-1])
    chains = np.moveaxis(strata, 3, 0)
    return chains.reshape(_REPORTED_CHAINS, -1, kept.shape[-1]), drawn.divergences


def _in_data_units(task: NormalTask | MultivariateNormalTask, drawn: NormalDraws) -> Floats:
    """Return means, standard deviations and correlations, shape (kept, chains, k)."""
    units = np.array([column.half_range for column in task.columns])
    centres = np.array([column.centre for column in task.columns])
    size = len(units)
    covariances = drawn.covariances[:, 0]
    sds = np.sqrt(np.diagonal(covariances, axis1=-2, axis2=-1))
    rows, columns = np.triu_indices(size, 1)
    correlations = covariances[..., rows, columns] / (sds[..., rows] * sds[..., columns])
    means = centres + units * drawn.means[:, 0]
    return np.concatenate([means, units * sds, correlations], axis=-1)
