"""Mean and covariance of normal records given noisy second moments.

With a normal-inverse-Wishart prior, the sum s and the matrix Q = sum x x' of n normal records have
a marginal density in closed form:

    p(s, Q) proportional to |S|^((n - d - 2)/2) |Psi_n(s, Q)|^(-(nu + n)/2),  S = Q - s s'/n,

from Wishart's density of S, the normal one of s, and the prior. Times the density of the noise it
is the posterior of the true moments, which are sampled in coordinates (s/n, Cholesky factor of S/n)
where every point is positive definite; mean and covariance are then drawn from their conjugate
posterior given those moments, which is exact. Without noise that is the conjugate posterior itself.
Approach of Bernstein and Sheldon 2018 (arXiv:1809.02188), with their normal approximation of the
moments' law replaced by the law.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shoal_learning.families.conjugate import (
    NormalDraws,
    NormalInverseWishart,
    conjugate,
    prior_draws,
)
from shoal_learning.families.hamiltonian import Schedule, sample
from shoal_learning.families.noise import SummedNoise
from shoal_learning.families.special import Floats

SCHEDULE: Final = Schedule(adaptations=6, adaptation_length=50, kept=100, longest=48)
ROUGH_SCHEDULE: Final = Schedule(adaptations=5, adaptation_length=40, kept=100, longest=8)
"""For Laplace noise, whose density has kinks: shorter trajectories, and refreshed coordinates."""
CHAINS: Final = 64
STRATA: Final = 4
"""Numbers of records that the chains of a group stand for, equally many chains each."""

_REFRESHES: Final = 6  # between two trajectories
_SMALLEST_VARIANCE: Final = 1e-20
_LARGEST_POSITION: Final = 1e6
_LARGEST_LOG: Final = 30.0  # of the factor's diagonal, in normalised units


@dataclass(frozen=True, kw_only=True)
class NoisyScatter:
    """Noisy sums of x, shape (..., d), and of x x', shape (..., d, d), of so many records.

    `square_noise` is on the diagonal of x x', `cross_noise` off it. `records` has shape
    (..., chains), and is the same number in every chain of a stratum.
    """

    sums: Floats
    squares: Floats
    sum_noise: SummedNoise
    square_noise: SummedNoise
    cross_noise: SummedNoise
    records: Floats


def draw_normals(
    noisy: NoisyScatter,
    prior: NormalInverseWishart,
    generator: np.random.Generator,
    schedule: Schedule | None = None,
) -> NormalDraws:
    """Return draws of mean and covariance, leading shape (kept, groups, chains).

    `schedule` None is long enough for what was tried. `noisy` holds one group of moments or more,
    each sampled by chains of its own. Chains of fewer records than can tell a covariance give draws
    of the prior: behind noise that hides any one record, so few say next to nothing.

    Raises:
        NoConvergence: the sampler's chains disagree.
    """
    few = noisy.records < fewest_records(noisy.sums.shape[-1])
    if few.all():
        shape = ((schedule or SCHEDULE).kept, *noisy.records.shape)
        return prior_draws(shape, prior, generator)
    usable = np.min(noisy.records, axis=-1, where=~few, initial=float(noisy.records.max()))
    target = _Target(replace(noisy, records=np.where(few, usable[..., None], noisy.records)), prior)
    start = target.start(generator)
    if noisy.sum_noise.mechanism == "discrete_gaussian":
        draws = sample(target, start, schedule or SCHEDULE, generator, strata=STRATA)
    else:
        draws = sample(
            target, start, schedule or ROUGH_SCHEDULE, generator, target.refresh, strata=STRATA
        )
    true_means, factors = target.moments(draws.values)
    true_means = np.where(few[..., None], prior.location, true_means)
    factors = np.where(few[..., None, None], 0.0, factors)
    records = np.where(few, 0.0, noisy.records)
    means, covariances = conjugate(true_means, factors, records, prior, generator)
    return NormalDraws(means, covariances, draws.divergences)


def fewest_records(columns: int) -> int:
    """Return how many records can tell a covariance of so many columns."""
    return 2 * columns + 4


class _Target:
    """The log density of s/n and the Cholesky factor of S/n, by coordinates without a funnel.

    These are the factor's diagonal, in logarithms, and its rows divided by their diagonal.
    """

    def __init__(self, noisy: NoisyScatter, prior: NormalInverseWishart) -> None:
        self._noisy, self._prior = noisy, prior
        self._size = noisy.sums.shape[-1]
        self._lower = np.tril_indices(self._size)
        self._diagonal = np.flatnonzero(self._lower[0] == self._lower[1])
        # With fewer records than columns S is singular: then no power of its determinant counts.
        self._power = np.maximum(noisy.records - self._size - 2.0, -1.0)
        self._jacobian = (
            self._size + 1.0
        )  # d - j for Q by the factor, j for its rows, 1 for the log

    def moments(self, position: Floats) -> tuple[Floats, Floats]:
        """Return s/n, shape (..., d), and the Cholesky factor of S/n, shape (..., d, d)."""
        size = self._size
        factors = np.zeros((*position.shape[:-1], size, size))
        factors[..., self._lower[0], self._lower[1]] = position[..., size:]
        index = np.arange(size)
        scales = np.exp(factors[..., index, index])
        factors[..., index, index] = 1.0
        return position[..., :size], factors * scales[..., None]

    def start(self, generator: np.random.Generator) -> Floats:
        """Return positions around the nearest positive definite moments, spread as the noise."""
        noisy, size = self._noisy, self._size
        records = noisy.records[..., None]
        shape = (*noisy.records.shape, size)
        sums = noisy.sums[..., None, :] + noisy.sum_noise.sd * generator.standard_normal(shape)
        means = np.clip(sums / records, -1.5, 1.5)
        noise = self._noise(generator)
        squares = (noisy.squares[..., None, :, :] + noise) / records[..., None]
        squares = squares - means[..., :, None] * means[..., None, :]
        values, vectors = np.linalg.eigh(squares)
        floor = np.minimum(0.5 * noisy.square_noise.sd * math.sqrt(size) / records, 0.1)
        values = np.maximum(values, floor * np.exp(0.5 * generator.standard_normal(values.shape)))
        values = np.minimum(values, float(size))  # of few records noise alone may tell of more
        raised = np.einsum("...ij,...j,...kj->...ik", vectors, values, vectors)
        return self._position(means, np.linalg.cholesky(raised))

    def __call__(self, position: Floats) -> tuple[Floats, Floats]:
        """Return log densities, shape (...), and gradients, shape (..., d + d (d + 1) / 2)."""
        noisy, prior, size = self._noisy, self._prior, self._size
        n = noisy.records
        # A trajectory that has left what can be computed stands still, and is refused.
        lost = ~np.all(np.abs(position) < _LARGEST_POSITION, axis=-1)
        lost |= np.any(np.abs(position[..., size + self._diagonal]) > _LARGEST_LOG, axis=-1)
        position = np.where(lost[..., None], 0.0, position)
        wide, wider = n[..., None], n[..., None, None]
        index, (rows, columns) = np.arange(size), np.triu_indices(size, 1)
        means, factors = self.moments(position)
        logs = position[..., size + self._diagonal]
        away = means - prior.location
        pooled = factors @ np.swapaxes(factors, -1, -2)
        psi, log_determinant, shrink = self._scatter(means, pooled)
        inverse = np.linalg.inv(psi)
        freedom = prior.freedom + n
        square_gaps = noisy.squares[..., None, :, :] - wider * (
            pooled + means[..., :, None] * means[..., None, :]
        )
        sum_gaps = noisy.sums[..., None, :] - wide * means
        value = (
            self._power * logs.sum(axis=-1)
            + self._jacobian * logs.sum(axis=-1)
            - 0.5 * freedom * log_determinant
            + noisy.square_noise.log_density(square_gaps[..., index, index]).sum(axis=-1)
            + noisy.cross_noise.log_density(square_gaps[..., rows, columns]).sum(axis=-1)
            + noisy.sum_noise.log_density(sum_gaps).sum(axis=-1)
        )
        # Derivatives by the symmetric Q: each off-diagonal entry stands for two.
        by_squares = np.zeros_like(square_gaps)
        by_squares[..., rows, columns] = -0.5 * noisy.cross_noise.slope(
            square_gaps[..., rows, columns]
        )
        by_squares += np.swapaxes(by_squares, -1, -2)
        by_squares[..., index, index] = -noisy.square_noise.slope(square_gaps[..., index, index])
        by_factor = 2.0 * wider * (by_squares @ factors)
        by_factor -= freedom[..., None, None] * wider * (inverse @ factors)
        by_mean = 2.0 * wide * np.einsum("...ij,...j->...i", by_squares, means)
        by_mean -= wide * noisy.sum_noise.slope(sum_gaps)
        by_mean -= (freedom * shrink)[..., None] * np.einsum("...ij,...j->...i", inverse, away)
        scales = np.exp(logs)
        flat = (by_factor * scales[..., None])[..., self._lower[0], self._lower[1]]
        flat[..., self._diagonal] = (by_factor * factors).sum(
            axis=-1
        )  # a row's scale is in all of it
        flat[..., self._diagonal] += self._power[..., None] + self._jacobian
        gradient = np.concatenate([by_mean, flat], axis=-1)
        return np.where(lost, -np.inf, value), np.where(lost[..., None], 0.0, gradient)

    def refresh(self, position: Floats, generator: np.random.Generator) -> Floats:
        """Exchange the noise of some coordinates for fresh noise, where the prior accepts that.

        An independence sampler on random blocks: proposals are noisy moments less fresh noise, so
        the noise's density cancels in Metropolis' ratio, kinks and all.
        """
        noisy, size = self._noisy, self._size
        n = noisy.records
        lower = self._lower
        means, factors = self.moments(position)
        sums = n[..., None] * means
        squares = factors @ np.swapaxes(factors, -1, -2) + means[..., :, None] * means[..., None, :]
        squares = n[..., None, None] * squares
        logs, _ = self._log_prior(sums, squares)
        for _ in range(_REFRESHES):
            share = 0.5 ** generator.integers(0, 1 + int(math.log2(position.shape[-1])), n.shape)
            fresh = generator.random(position.shape) < share[..., None]
            new_sums = noisy.sums[..., None, :] - noisy.sum_noise.draw(sums.shape, generator)
            noise = self._noise(generator)
            chosen = np.zeros(squares.shape, dtype=np.bool_)
            chosen[..., lower[0], lower[1]] = fresh[..., size:]
            chosen |= np.swapaxes(chosen, -1, -2)
            new_sums = np.where(fresh[..., :size], new_sums, sums)
            new_squares = np.where(chosen, noisy.squares[..., None, :, :] - noise, squares)
            new_logs, _ = self._log_prior(new_sums, new_squares)
            taken = np.log(generator.random(n.shape)) < new_logs - logs
            sums = np.where(taken[..., None], new_sums, sums)
            squares = np.where(taken[..., None, None], new_squares, squares)
            logs = np.where(taken, new_logs, logs)
        _, factors = self._log_prior(sums, squares)
        return self._position(sums / n[..., None], factors)

    def _noise(self, generator: np.random.Generator) -> Floats:
        """Return symmetric matrices of fresh noise, one for each chain."""
        noisy, size = self._noisy, self._size
        index, (rows, columns) = np.arange(size), np.triu_indices(size, 1)
        shape = noisy.records.shape
        noise = np.zeros((*shape, size, size))
        noise[..., rows, columns] = noisy.cross_noise.draw((*shape, len(rows)), generator)
        noise += np.swapaxes(noise, -1, -2)
        noise[..., index, index] = noisy.square_noise.draw((*shape, size), generator)
        return noise

    def _position(self, means: Floats, factors: Floats) -> Floats:
        scales = np.diagonal(factors, axis1=-2, axis2=-1)
        flat = factors / scales[..., None]
        flat = flat + np.eye(self._size) * (np.log(scales) - 1.0)[..., None]
        return np.concatenate([means, flat[..., self._lower[0], self._lower[1]]], axis=-1)

    def _log_prior(self, sums: Floats, squares: Floats) -> tuple[Floats, Floats]:
        """Return ln p(s, Q) up to a constant, and the Cholesky factor of S/n.

        Minus infinity, and a factor that means nothing, where S is not positive definite.
        """
        n, size = self._noisy.records, self._size
        means = sums / n[..., None]
        pooled = squares / n[..., None, None] - means[..., :, None] * means[..., None, :]
        definite = np.linalg.eigvalsh(pooled)[..., 0] > _SMALLEST_VARIANCE
        pooled = np.where(definite[..., None, None], pooled, np.eye(size))
        factors = np.linalg.cholesky(pooled)
        logs = np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(axis=-1)
        _, log_determinant, _ = self._scatter(means, pooled)
        value = self._power * logs - 0.5 * (self._prior.freedom + n) * log_determinant
        return np.where(definite, value, -np.inf), np.asarray(factors, dtype=np.float64)

    def _scatter(self, means: Floats, pooled: Floats) -> tuple[Floats, Floats, Floats]:
        """Return Psi_n, its log determinant, and the weight of (s/n - location) squared in it."""
        n, prior = self._noisy.records, self._prior
        away = means - prior.location
        shrink = prior.mean_records * n / (prior.mean_records + n)
        psi = prior.scatter + n[..., None, None] * pooled
        psi = psi + shrink[..., None, None] * away[..., :, None] * away[..., None, :]
        return psi, np.linalg.slogdet(psi)[1], shrink
