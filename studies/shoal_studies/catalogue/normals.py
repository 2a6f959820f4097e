"""Means, standard deviations and correlations of normal records, in one column or in several.

The learner reads second moments of normalised records with a constant k: k times a column's sum is
off the diagonal of the matrix. It draws true moments given the noisy ones by adaptive importance
sampling, and then the parameters from their conjugate posterior. It sees the number of records
through noise: draws are of several numbers, by what the noisy count says of each. What the moments
themselves say of it is not used.
"""

import itertools
import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator
from scipy.special import softmax

from shoal_protocol.queries import SecondMomentMatrix
from shoal_protocol.queries.columns import ColumnBounds, distinct
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import matrix_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.wire.encoding import Positive, Real
from shoal_studies.catalogue.measurements import query_of, record_count
from shoal_studies.catalogue.one_round import (
    SummedNoise,
    generator_for,
    noise_of,
    record_counts,
)
from shoal_studies.catalogue.study import OneRoundStudy, Pseudocount, require_near
from shoal_studies.contract import NoReliablePosterior
from shoal_studies.posteriors.base import BasePosterior
from shoal_studies.posteriors.forms import MOST_VALUES, StoredDraws, encoded


class NormalPosterior(StoredDraws):
    """Of means, standard deviations and correlations of the records of `columns`, as joint draws.

    The draws account for the records' scatter
    and the privacy noise, and not for values cut at the bounds. The covariance of every draw is
    positive definite.
    """

    name: Literal["normal"] = "normal"

    @model_validator(mode="after")
    def _are_of_the_columns(self) -> Self:
        if self.names != parameter_names(self.columns):
            raise ValueError("the parameters are means, standard deviations and correlations")
        return self

    @classmethod
    def thinned(cls, draws: Floats, *, columns: tuple[str, ...], records: int) -> Self:
        """Return the posterior of `draws`, shape (draws, k), thinned to at most `MOST_VALUES`."""
        step = -(-draws.size // MOST_VALUES)
        return cls(
            names=parameter_names(columns),
            columns=columns,
            records=records,
            values=encoded(draws[step - 1 :: step]),
        )

    def covariances(self) -> Floats:
        """Return the draws of the covariance matrix, shape (draws, d, d)."""
        size = len(self.columns)
        correlations = np.zeros((len(self.draws), size, size))
        rows, columns = np.triu_indices(size, 1)
        correlations[:, rows, columns] = self.draws[:, 2 * size :]
        correlations += np.swapaxes(correlations, 1, 2) + np.eye(size)
        sds = self.draws[:, size : 2 * size]
        return np.asarray(correlations * sds[:, :, None] * sds[:, None, :])


class NormalTask(OneRoundStudy):
    """Means, standard deviations and correlations of normal records, in one column or in several.

    Prior: normal-inverse-Wishart around `prior_means` (None: the middles of the bounds) and
    uncorrelated columns of `prior_sds` (None: thirds of half the ranges); `prior_freedom` None
    makes it the number of columns plus two, and the means are worth `prior_mean_records` records.
    A client holds one record at most. The bounds' cut is not modelled: choose bounds that records
    hardly ever pass. `intercept` weighs the sums against the squares: the noise on a column's sum
    is proportional to (q + k^2) / k, on the squares to q + k^2, for q columns and intercept k.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (NormalPosterior,)
    example: ClassVar[str] = """\
[task]
name = "normal"

[variables]                    # public bounds that records hardly ever pass
age = [18, 100]
systolic_pressure = [60, 220]
"""

    name: Literal["normal"] = "normal"
    records_per_client: Annotated[int, Field(ge=1, le=1, strict=True)] = 1
    variables: Annotated[
        tuple[ColumnBounds, ...], Field(min_length=1, max_length=12), AfterValidator(distinct)
    ]
    prior_means: tuple[Real, ...] | None = None
    prior_sds: tuple[Positive, ...] | None = None
    prior_freedom: Annotated[float, Field(ge=1.0, le=1e6, allow_inf_nan=False)] | None = None
    prior_mean_records: Pseudocount = 0.1
    intercept: Annotated[float, Field(ge=0.01, le=1.0, allow_inf_nan=False)] = 0.5
    grid_bits: Annotated[int, Field(ge=10, le=15, strict=True)] = 12

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        size = len(self.variables)
        for prior in (self.prior_means, self.prior_sds):
            if prior is not None and len(prior) != size:
                raise ValueError("prior_means and prior_sds must have one number for each column")
        if self.prior_freedom is not None and self.prior_freedom <= size - 1:
            raise ValueError("prior_freedom must be above the number of columns less one")
        means, sds = (prior or [None] * size for prior in (self.prior_means, self.prior_sds))
        require_near(self.variables, means, sds)
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The columns of a client's records, in order."""
        return self.variables

    @property
    def fewest_clients(self) -> int:
        """As many as can tell a covariance of the columns."""
        return fewest_records(len(self.columns))

    def query(self) -> SecondMomentMatrix:
        """Return the query of the only round."""
        return SecondMomentMatrix(
            columns=self._query_columns(),
            intercept=self.intercept,
            radius=None,
            grid_bits=self.grid_bits,
            records_per_client=self.records_per_client,
        )

    def posterior_from(self, released: ReleasedSum) -> NormalPosterior:
        return NormalPosterior.thinned(
            _draws(self, released),
            columns=tuple(each.name for each in self.columns),
            records=record_count(released),
        )


def parameter_names(variables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the parameters, in the order of the draws."""
    return (
        *(f"mean[{each}]" for each in variables),
        *(f"sd[{each}]" for each in variables),
        *(f"correlation[{one}, {other}]" for one, other in itertools.combinations(variables, 2)),
    )


_STRATA: Final = 4  # numbers of records that draws stand for, equally many draws each
_DRAWS: Final = 1600  # for each of them
_PROPOSALS: Final = 100  # for each coordinate and number of records, and
_LEAST_PROPOSALS: Final = 2000
_FREEDOM: Final = 10.0  # of the proposals' t distribution, for each coordinate, and
_LEAST_FREEDOM: Final = 20.0
_ADAPTATIONS: Final = 30  # at most
_ENOUGH: Final = 0.3  # effective share of proposals, with which adaptation ends
_FOR_A_FIT: Final = 20.0  # effective proposals for each coordinate
_FEWEST: Final = 20.0  # effective proposals for each number of records
_MOST_KINKED: Final = 3  # columns; of more, Laplace noise counts as normal of its variance
_SMALLEST_VARIANCE: Final = 1e-12
_LARGEST_LOG: Final = 30.0  # of the factor's diagonal, in normalised units


@dataclass(frozen=True, kw_only=True)
class NormalInverseWishart:
    """Sigma ~ IW(freedom, scatter), mean | Sigma ~ N(location, Sigma / mean_records).

    Shapes (d,) and (d, d), in normalised units; freedom > d - 1.
    """

    location: Floats
    mean_records: float
    freedom: float
    scatter: Floats


def conjugate(
    means: Floats,
    factors: Floats,
    records: Floats,
    prior: NormalInverseWishart,
    generator: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Draw mean and covariance given true moments: one draw of each posterior.

    The covariance is R W^-1 R' with Psi_n = R R' and W Wishart by Bartlett's decomposition.
    """
    size = means.shape[-1]
    weight = prior.mean_records + records
    away = means - prior.location
    shrink = (prior.mean_records * records / weight)[..., None, None]
    psi = prior.scatter + records[..., None, None] * (factors @ np.swapaxes(factors, -1, -2))
    psi = psi + shrink * away[..., :, None] * away[..., None, :]
    freedom = np.broadcast_to((prior.freedom + records)[..., None], means.shape) - np.arange(size)
    bartlett = np.tril(generator.standard_normal((*means.shape, size)), -1)
    index = np.arange(size)
    bartlett[..., index, index] = np.sqrt(generator.chisquare(freedom))
    root = np.linalg.solve(bartlett, np.swapaxes(np.linalg.cholesky(psi), -1, -2))
    covariances = np.swapaxes(root, -1, -2) @ root
    centre = prior.location + (records / weight)[..., None] * away
    standard = generator.standard_normal(means.shape)
    scattered = np.einsum("...ji,...j->...i", root, standard)
    return centre + scattered / np.sqrt(weight)[..., None], covariances


@dataclass(frozen=True, kw_only=True)
class NoisyScatter:
    """Noisy sums of x, shape (d,), and of x x', shape (d, d), of so many `records`, (strata, 1).

    `square_noise` is on the diagonal of x x', `cross_noise` off it.
    """

    sums: Floats
    squares: Floats
    sum_noise: SummedNoise
    square_noise: SummedNoise
    cross_noise: SummedNoise
    records: Floats


def draw_normals(
    noisy: NoisyScatter, prior: NormalInverseWishart, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return draws of mean and covariance, shapes (strata, draws, d) and (strata, draws, d, d).

    Numbers of records that are fewer than can tell a covariance give draws of the prior: behind
    noise that hides any one record, so few say next to nothing.

    Raises:
        NoReliablePosterior: importance sampling found too few moments that are likely.
    """
    size = len(prior.location)
    tell = noisy.records[:, 0] >= fewest_records(size)
    means = np.tile(prior.location, (len(tell), _DRAWS, 1))
    factors = np.zeros((*means.shape, size))
    if tell.any():
        target = _Target(replace(noisy, records=noisy.records[tell]), prior)
        means[tell], factors[tell] = target.moments(_positions(target, generator))
    records = np.where(tell[:, None], np.repeat(noisy.records, _DRAWS, axis=1), 0.0)
    return conjugate(means, factors, records, prior, generator)


def fewest_records(columns: int) -> int:
    """Return how many records can tell a covariance of so many columns."""
    return 2 * columns + 4


class _Target:
    """The log density of s/n and the Cholesky factor of S/n, by coordinates without a funnel.

    These are the factor's diagonal, in logarithms, and its rows divided by their diagonal.
    Positions have shape (strata, count, d + d (d + 1) / 2).
    """

    def __init__(self, noisy: NoisyScatter, prior: NormalInverseWishart) -> None:
        self._noisy, self._prior = noisy, prior
        self._size = len(prior.location)
        self._lower = np.tril_indices(self._size)
        self._diagonal = np.flatnonzero(self._lower[0] == self._lower[1])

    def moments(self, position: Floats) -> tuple[Floats, Floats]:
        """Return s/n, shape (..., d), and the Cholesky factor of S/n, shape (..., d, d)."""
        size = self._size
        factors = np.zeros((*position.shape[:-1], size, size))
        factors[..., self._lower[0], self._lower[1]] = position[..., size:]
        index = np.arange(size)
        scales = np.exp(factors[..., index, index])
        factors[..., index, index] = 1.0
        return position[..., :size], factors * scales[..., None]

    def start(self, count: int, generator: np.random.Generator) -> Floats:
        """Return `count` positions around the nearest positive definite moments of each stratum."""
        noisy, size = self._noisy, self._size
        records = noisy.records[..., None]
        shape = (len(records), count, size)
        means = np.clip((noisy.sums + noisy.sum_noise.draw(shape, generator)) / records, -1.5, 1.5)
        noise = np.zeros((*shape, size))
        index, (rows, columns) = np.arange(size), np.triu_indices(size, 1)
        noise[..., rows, columns] = noisy.cross_noise.draw((*shape[:2], len(rows)), generator)
        noise += np.swapaxes(noise, -1, -2)
        noise[..., index, index] = noisy.square_noise.draw(shape, generator)
        squares = (noisy.squares + noise) / records[..., None]
        squares = squares - means[..., :, None] * means[..., None, :]
        values, vectors = np.linalg.eigh(squares)
        floor = np.minimum(0.5 * noisy.square_noise.sd * math.sqrt(size) / records, 0.1)
        values = np.maximum(values, floor * np.exp(0.5 * generator.standard_normal(values.shape)))
        values = np.clip(values, _SMALLEST_VARIANCE, float(size))
        factors = np.linalg.cholesky(
            (vectors * values[..., None, :]) @ np.swapaxes(vectors, -1, -2)
        )
        scales = np.diagonal(factors, axis1=-2, axis2=-1)
        flat = factors / scales[..., None]
        flat = flat + np.eye(size) * (np.log(scales) - 1.0)[..., None]
        return np.concatenate([means, flat[..., self._lower[0], self._lower[1]]], axis=-1)

    def log_density(self, position: Floats) -> Floats:
        """Return log densities up to a constant of each stratum, shape (strata, count)."""
        noisy, prior, size = self._noisy, self._prior, self._size
        n = noisy.records
        logs = position[..., size + self._diagonal]
        lost = np.any(np.abs(logs) > _LARGEST_LOG, axis=-1)
        means, factors = self.moments(np.where(lost[..., None], 0.0, position))
        pooled = factors @ np.swapaxes(factors, -1, -2)
        away = means - prior.location
        shrink = prior.mean_records * n / (prior.mean_records + n)
        psi = prior.scatter + n[..., None, None] * pooled
        psi = psi + shrink[..., None, None] * away[..., :, None] * away[..., None, :]
        squares = pooled + means[..., :, None] * means[..., None, :]
        gaps = noisy.squares - n[..., None, None] * squares
        index, (rows, columns) = np.arange(size), np.triu_indices(size, 1)
        # With fewer records than columns S is singular: then no power of its determinant counts.
        # The Jacobian: d - j for S by the factor, j for its rows, 1 for the logarithm.
        power = np.maximum(n - size - 2.0, -1.0) + size + 1.0
        value = (
            power * logs.sum(axis=-1)
            - 0.5 * (prior.freedom + n) * np.linalg.slogdet(psi)[1]
            + noisy.square_noise.log_density(gaps[..., index, index]).sum(axis=-1)
            + noisy.cross_noise.log_density(gaps[..., rows, columns]).sum(axis=-1)
            + noisy.sum_noise.log_density(noisy.sums - n[..., None] * means).sum(axis=-1)
        )
        return np.where(lost, -np.inf, value)


def _positions(target: _Target, generator: np.random.Generator) -> Floats:
    """Return draws of the target's positions, shape (strata, draws, k).

    Proposals are of a t distribution that is fitted to them again and again, by their weights: to a
    power of these where they are too uneven (population Monte Carlo, Cappé et al. 2004,
    doi:10.1198/106186004X12803, with tempering).
    """
    proposals = target.start(_LEAST_PROPOSALS, generator)
    strata, _, size = proposals.shape
    count = max(_LEAST_PROPOSALS, _PROPOSALS * size)
    freedom = max(_LEAST_FREEDOM, _FREEDOM * size)
    mean, covariance = _fitted(proposals, np.ones(proposals.shape[:2]))
    weights = np.empty(0)
    for _ in range(_ADAPTATIONS):
        root = np.linalg.cholesky(covariance + _SMALLEST_VARIANCE * np.eye(size))
        shrink = np.sqrt(generator.chisquare(freedom, (strata, count, 1)) / freedom)
        standard = generator.standard_normal((strata, count, size)) / shrink
        proposals = mean + standard @ root.T
        squares = np.sum(standard**2, axis=-1)
        log_weights = target.log_density(proposals)
        log_weights += 0.5 * (freedom + size) * np.log1p(squares / freedom)
        weights = even = softmax(log_weights, axis=1)
        if _effective(weights) > _ENOUGH * count:
            break
        power = 1.0
        while _effective(even) < _FOR_A_FIT * size / strata:
            power *= 0.9
            even = softmax(power * log_weights, axis=1)
        mean, fitted = _fitted(proposals, even)
        covariance = (covariance + fitted) / 2.0
    if _effective(weights) < _FEWEST:
        raise NoReliablePosterior(
            "noise leaves so much open that true moments cannot be drawn: no posterior is "
            "reported; ask for fewer columns or allow a larger epsilon"
        )
    chosen = [generator.choice(count, _DRAWS, p=of_stratum) for of_stratum in weights]
    return np.take_along_axis(proposals, np.array(chosen)[..., None], axis=1)


def _fitted(proposals: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return weighted mean, shape (k,), and covariance, shape (k, k), of all strata's proposals."""
    flat, shares = proposals.reshape(-1, proposals.shape[-1]), weights.ravel() / weights.sum()
    mean = shares @ flat
    return mean, (flat - mean).T @ ((flat - mean) * shares[:, None])


def _effective(weights: Floats) -> float:
    """Return the effective number of proposals of the stratum that has the fewest."""
    return float(np.min(1.0 / np.sum(weights**2, axis=1)))


def normalised_prior(task: NormalTask) -> NormalInverseWishart:
    """Return the prior for columns that their bounds have taken to [-1, 1].

    The task's `prior_sds` are those of a covariance that is the prior's scatter over its freedom.
    """
    centres = np.array([column.centre for column in task.columns])
    units = np.array([column.half_range for column in task.columns])
    means = centres if task.prior_means is None else np.array(task.prior_means)
    sds = units / 3.0 if task.prior_sds is None else np.array(task.prior_sds)
    freedom = len(units) + 2.0 if task.prior_freedom is None else task.prior_freedom
    return NormalInverseWishart(
        location=(means - centres) / units,
        mean_records=task.prior_mean_records,
        freedom=freedom,
        scatter=freedom * np.diag(np.square(sds / units)),
    )


def _noisy_scatter(released: ReleasedSum) -> NoisyScatter:
    """Return the noisy moments, with as many numbers of records as there are strata.

    Raises:
        ValueError: `released` answers another query.
    """
    query = query_of(released, SecondMomentMatrix)
    matrix = matrix_from(query, released.values)
    laws = [noise_of(released, place, query.grid**2) for place in (0, -2)]
    if len(query.columns) > _MOST_KINKED:
        laws = [replace(law, mechanism="discrete_gaussian") for law in laws]
    square_noise, cross_noise = laws
    constant = query.constant / query.grid
    return NoisyScatter(
        sums=matrix[0, 1:] / constant,
        squares=matrix[1:, 1:],
        sum_noise=replace(cross_noise, sd=cross_noise.sd / constant),
        square_noise=square_noise,
        cross_noise=cross_noise,
        records=_numbers_of_records(released)[:, None],
    )


def _numbers_of_records(released: ReleasedSum) -> Floats:
    """Return how many records there may be, as many equally likely numbers as there are strata.

    Their prior is 1 / (n + 1): of none, a few that noise leaves possible would narrow a wide prior.
    """
    numbers, log_weights = record_counts(released, log_uniform=True)
    weights = np.exp(log_weights)
    places = (np.arange(_STRATA) + 0.5) / _STRATA
    middles = np.cumsum(weights) - 0.5 * weights
    return np.asarray(np.expm1(np.interp(places, middles, np.log1p(numbers))))


def _draws(task: NormalTask, released: ReleasedSum) -> Floats:
    """Return draws of means, standard deviations and correlations, shape (draws, k).

    Their order is random: however they are thinned, all numbers of records have their share.
    """
    prior = normalised_prior(task)
    generator = generator_for(released)
    locations, covariances = draw_normals(_noisy_scatter(released), prior, generator)
    units = np.array([column.half_range for column in task.columns])
    centres = np.array([column.centre for column in task.columns])
    deviations = np.sqrt(np.diagonal(covariances, axis1=-2, axis2=-1))
    rows, columns = np.triu_indices(len(units), 1)
    correlations = covariances[..., rows, columns] / (
        deviations[..., rows] * deviations[..., columns]
    )
    parts = [centres + units * locations, units * deviations, correlations]
    draws = np.concatenate(parts, axis=-1)
    return generator.permutation(draws.reshape(-1, draws.shape[-1]))
