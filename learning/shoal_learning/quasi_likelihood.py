"""Posterior of a linear regression given noisy second moments; knows no columns and no rounds.

With W = X'X, u = X'y, v = y'y and noise E on all of them, r(b) = z_u - Z_W b has mean zero and
covariance s^2 W + Omega(b), where Omega comes from the privacy noise alone, and
z_v - 2 b'z_u + b'Z_W b has mean n s^2. This is the quasi-likelihood of docs/mathematics.md. It is
solved by iterated generalised least squares for each of a grid of residual standard deviations s,
and the grid is weighted by the (Laplace approximated) evidence. No random numbers are used.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]

_GRID_POINTS: Final = 12
_LARGEST_S: Final = 1.0  # the target lies in [-1, 1]
_SMALLEST_S: Final = 0.01
_REFINEMENTS: Final = 5
_ITERATIONS: Final = 100
_TOLERANCE: Final = 1e-8


@dataclass(frozen=True, kw_only=True)
class NoisyMoments:
    """Noisy second moments of rows (design, target) with k design coordinates.

    `matrix`, shape (k + 1, k + 1), symmetric, the target last; noise of standard deviation
    `diagonal_sd` and `off_diagonal_sd`; `records` rows went in.
    """

    matrix: FloatMatrix
    diagonal_sd: float
    off_diagonal_sd: float
    records: int


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """Gaussian posterior of b, shapes (k,) and (k, k), and the residual standard deviation s."""

    mean: FloatVector
    covariance: FloatMatrix
    residual_sd: float


@dataclass(frozen=True, kw_only=True)
class _Fit:
    residual_variance: float
    mean: FloatVector
    covariance: FloatMatrix
    log_weight: float


def noise_aware_posterior(moments: NoisyMoments, prior_sd: FloatVector) -> Coefficients:
    """Return the posterior of the regression of the last coordinate on the others.

    `prior_sd`, shape (k,): independent normal priors with mean zero. The prior of s is uniform
    over the grid's range, from .01 to 1.

    Raises:
        ArithmeticError, numpy.linalg.LinAlgError: a number is too large or too small for a float.
    """
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        return _posterior(moments, prior_sd)


def _posterior(moments: NoisyMoments, prior_sd: FloatVector) -> Coefficients:
    gram = _nearest_gram(moments.matrix[:-1, :-1], moments.records)
    precision = np.diag(prior_sd**-2.0)
    start = ridge_estimate(moments)
    low, high = _SMALLEST_S, _LARGEST_S
    fits: list[_Fit] = []
    weights = np.ones(1)
    for _ in range(_REFINEMENTS):
        grid = np.geomspace(low, high, _GRID_POINTS)
        fits = []
        mean = start
        for s in grid:
            fit = _fit(s * s, mean, gram, moments, precision)
            mean = fit.mean
            fits.append(fit)
        log_weights = np.array([fit.log_weight for fit in fits]) + np.log(grid)
        weights = np.exp(log_weights - log_weights.max())
        kept = np.flatnonzero(weights > 1e-4)
        first, last = max(kept[0] - 1, 0), min(kept[-1] + 1, _GRID_POINTS - 1)
        if last - first > _GRID_POINTS // 2:
            break
        low, high = float(grid[first]), float(grid[last])
    weights = weights / weights.sum()
    means = np.array([fit.mean for fit in fits])
    mean = weights @ means
    centred = means - mean
    covariance = sum(
        (weight * fit.covariance for weight, fit in zip(weights, fits, strict=True)),
        start=centred.T @ (weights[:, None] * centred),
    )
    variance = float(weights @ np.array([fit.residual_variance for fit in fits]))
    return Coefficients(
        mean=mean, covariance=(covariance + covariance.T) / 2.0, residual_sd=variance**0.5
    )


def ridge_estimate(moments: NoisyMoments) -> FloatVector:
    """Return a fast point estimate of b, shape (k,): ridge 1 + off_diagonal_sd sqrt(k) / 2."""
    off_diagonal_sd = np.array([moments.off_diagonal_sd])
    [estimate] = ridge_estimates(moments.matrix[None], off_diagonal_sd, moments.records)
    return np.asarray(estimate, dtype=np.float64)


def ridge_estimates(
    matrices: FloatMatrix, off_diagonal_sds: FloatVector, records: int
) -> FloatMatrix:
    """Return `ridge_estimate` of many moment matrices at once, shape (m, k).

    `matrices` has shape (m, k + 1, k + 1), `off_diagonal_sds` shape (m,).
    """
    gram = _nearest_gram(matrices[:, :-1, :-1], records)
    size = gram.shape[-1]
    ridges = 1.0 + 0.5 * off_diagonal_sds * size**0.5
    ridged = gram + ridges[:, None, None] * np.eye(size)
    return np.asarray(np.linalg.solve(ridged, matrices[:, :-1, -1:])[..., 0], dtype=np.float64)


def _nearest_gram(matrices: FloatMatrix, records: int) -> FloatMatrix:
    """Return moment matrices of designs, with eigenvalues that noise drove below zero put back.

    `matrices`, shape (..., k, k), are symmetric.
    """
    values, vectors = np.linalg.eigh(matrices)
    raised = np.maximum(values, 1e-4 * records)
    gram: FloatMatrix = (vectors * raised[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return gram


def _spread(
    mean: FloatVector, variance: float, gram: FloatMatrix, moments: NoisyMoments
) -> FloatMatrix:
    """Return the covariance of z_u - Z_W b at b = `mean`: s^2 W + Omega(b).

    Row j of E (b, -1) has variance off^2 (1 + |b|^2 - b_j^2) + diag^2 b_j^2, rows j and k have
    covariance off^2 b_j b_k.
    """
    off_variance = moments.off_diagonal_sd**2
    excess = moments.diagonal_sd**2 - 2.0 * off_variance
    spread = variance * gram + off_variance * np.outer(mean, mean)
    spread[np.diag_indices(len(gram))] += off_variance * (1.0 + mean @ mean) + excess * mean**2
    return spread


def _fit(
    residual_variance: float,
    start: FloatVector,
    gram: FloatMatrix,
    moments: NoisyMoments,
    precision: FloatMatrix,
) -> _Fit:
    """Iterate generalised least squares to its fixed point for one residual variance."""
    cross, square = moments.matrix[:-1, -1], float(moments.matrix[-1, -1])
    mean = start
    spread, covariance = gram, precision
    for _ in range(_ITERATIONS):
        spread = _spread(mean, residual_variance, gram, moments)
        weighted = np.linalg.solve(spread, gram)
        covariance = np.asarray(np.linalg.inv(gram @ weighted + precision), dtype=np.float64)
        update = covariance @ (weighted.T @ cross)
        step = float(np.abs(update - mean).max())
        mean = 0.5 * (mean + update)  # undamped, the iteration may oscillate under heavy noise
        if step < _TOLERANCE:
            break
    gap = gram @ mean - cross
    joint = gram @ covariance
    # The residual sum of squares averaged over the posterior of b, and its variance.
    residual = square - 2.0 * mean @ cross + mean @ gram @ mean + np.trace(joint)
    squares = np.append(mean, -1.0) ** 2
    variance = (
        2.0 * moments.off_diagonal_sd**2 * (squares.sum() ** 2 - (squares**2).sum())
        + moments.diagonal_sd**2 * (squares**2).sum()
        + 2.0 * moments.records * residual_variance**2
        + 4.0 * gap @ covariance @ gap
        + 2.0 * np.sum(joint * joint.T)
    )
    log_weight = -0.5 * (
        (residual - moments.records * residual_variance) ** 2 / variance
        + np.log(variance)
        + gap @ np.linalg.solve(spread, gap)
        + np.linalg.slogdet(spread)[1]
        + mean @ precision @ mean
        - np.linalg.slogdet(covariance)[1]
    )
    return _Fit(
        residual_variance=residual_variance,
        mean=mean,
        covariance=covariance,
        log_weight=float(log_weight),
    )
