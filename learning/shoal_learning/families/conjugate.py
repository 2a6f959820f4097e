"""Normal means and covariances given true moments, or none: draws."""

from dataclasses import dataclass

import numpy as np

from shoal_learning.families.special import Floats


@dataclass(frozen=True, kw_only=True)
class NormalInverseWishart:
    """Sigma ~ IW(freedom, scatter), mean | Sigma ~ N(location, Sigma / mean_records).

    Shapes (d,) and (d, d), in normalised units; freedom > d - 1.
    """

    location: Floats
    mean_records: float
    freedom: float
    scatter: Floats


@dataclass(frozen=True)
class NormalDraws:
    """Draws of the mean, shape (..., d), and of the covariance, shape (..., d, d).

    `divergences` of all the sampler's trajectories behind them.
    """

    means: Floats
    covariances: Floats
    divergences: int


def prior_draws(
    shape: tuple[int, ...], prior: NormalInverseWishart, generator: np.random.Generator
) -> NormalDraws:
    """Return draws of the prior, leading shape `shape`."""
    size = len(prior.location)
    means = np.broadcast_to(prior.location, (*shape, size))
    nothing = np.zeros((*shape, size, size))
    return NormalDraws(*conjugate(means, nothing, np.zeros(shape), prior, generator), 0)


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
