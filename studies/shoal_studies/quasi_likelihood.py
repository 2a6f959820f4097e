"""Posterior of a linear regression given noisy second moments.

With W = X'X, u = X'y, v = y'y and noise E on all of them, r(b) = z_u - Z_W b has mean zero and
covariance s^2 W + Omega(b), where Omega comes from the privacy noise alone, and
z_v - 2 b'z_u + b'Z_W b has mean n s^2. Proof: docs/mathematics.md, proposition 3.1. It is
solved by iterated generalised least squares for each of a grid of residual standard deviations s,
and the grid is weighted by the (Laplace approximated) evidence. No random numbers are used.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.special import softmax

from shoal_protocol.queries.design import Floats

_GRID_POINTS: Final = 12
_LARGEST_S: Final = 1.0  # the target lies in [-1, 1]
_SMALLEST_S: Final = 0.01
_REFINEMENTS: Final = 5
_ITERATIONS: Final = 100
_TOLERANCE: Final = 1e-8


def averaged(logs: Floats, means: Floats, covariances: Floats) -> tuple[Floats, Floats]:
    """Return mean, shape (p,), and covariance of a mixture with log weights `logs`, any shape."""
    weights, size = softmax(logs).ravel(), means.shape[-1]
    parts = means.reshape(-1, size)
    mean: Floats = weights @ parts
    away = parts - mean
    covariance = np.tensordot(weights, covariances.reshape(-1, size, size), 1)
    return mean, covariance + away.T @ (weights[:, None] * away)


@dataclass(frozen=True, kw_only=True)
class NoisyMoments:
    """Noisy second moments of rows (design, target) with k design coordinates.

    `matrix`, shape (k + 1, k + 1), symmetric, the target last; noise of standard deviation
    `diagonal_sd` and `off_diagonal_sd`; `records` rows went in, known to `records_sd`. No row's
    squared norm is above `largest_square`.
    """

    matrix: Floats
    diagonal_sd: float
    off_diagonal_sd: float
    records: float
    records_sd: float
    largest_square: float


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """Gaussian posterior of b, shapes (k,) and (k, k), and the residual standard deviation s.

    s is the root of its mean square, and `residual_sd_sd` its standard deviation. `log_evidence` is
    that of the prior, up to a constant of the moments.
    """

    mean: Floats
    covariance: Floats
    residual_sd: float
    residual_sd_sd: float
    log_evidence: float


@dataclass(frozen=True, kw_only=True)
class _Fits:
    """The fits for g residual variances, along the first axis of every array."""

    means: Floats
    covariances: Floats
    log_weights: Floats


def noise_aware_posterior(
    moments: NoisyMoments, prior_sd: Floats, residual_sd: float | None = None
) -> Coefficients:
    """Return the posterior of the regression of the last coordinate on the others.

    `prior_sd`, shape (k,): independent normal priors with mean zero. s is `residual_sd`; None: its
    prior is uniform over the grid's range, from .01 to 1.

    Raises:
        ArithmeticError, numpy.linalg.LinAlgError: a number is too large or too small for a float.
    """
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        return _posterior(moments, prior_sd, residual_sd)


def _posterior(moments: NoisyMoments, prior_sd: Floats, residual_sd: float | None) -> Coefficients:
    gram = _nearest_gram(moments.matrix[:-1, :-1], moments.records, moments.largest_square)
    precision = np.diag(prior_sd**-2.0)
    grid = np.geomspace(_SMALLEST_S, _LARGEST_S, _GRID_POINTS)
    if residual_sd is not None:
        grid = np.array([residual_sd])
    [start] = ridge_estimates(
        moments.matrix[None], np.array([moments.off_diagonal_sd]), moments.records
    )
    fits, weights = _weighted(grid, start, gram, moments, precision)
    for _ in range(_REFINEMENTS - 1 if residual_sd is None else 0):
        kept = np.flatnonzero(weights > 1e-4)
        first, last = max(kept[0] - 1, 0), min(kept[-1] + 1, _GRID_POINTS - 1)
        if last - first > _GRID_POINTS // 2:
            break
        grid = np.geomspace(grid[first], grid[last], _GRID_POINTS)
        start = fits.means[weights.argmax()]
        fits, weights = _weighted(grid, start, gram, moments, precision)
    evidence = float(np.log(weights.sum()) + fits.log_weights.max())
    evidence += 0.0 if len(grid) == 1 else float(np.log(np.log(grid[1] / grid[0])))
    evidence += 0.5 * float(np.log(np.diagonal(precision)).sum())
    mean, covariance = averaged(fits.log_weights, fits.means, fits.covariances)
    shares = softmax(fits.log_weights)
    variance, likely = float(shares @ grid**2), float(shares @ grid)
    return Coefficients(
        mean=mean,
        covariance=(covariance + covariance.T) / 2.0,
        residual_sd=variance**0.5,
        residual_sd_sd=max(variance - likely**2, 0.0) ** 0.5,
        log_evidence=evidence,
    )


def _weighted(
    grid: Floats,
    start: Floats,
    gram: Floats,
    moments: NoisyMoments,
    precision: Floats,
) -> tuple[_Fits, Floats]:
    """Return the fits for a grid of s, and their weights, the largest of which is 1."""
    fits = _fits(grid**2, start, gram, moments, precision)
    fits = replace(fits, log_weights=fits.log_weights + np.log(grid))
    return fits, np.exp(fits.log_weights - fits.log_weights.max())


def ridge_estimates(matrices: Floats, off_diagonal_sds: Floats, records: float) -> Floats:
    """Return fast point estimates of b, shape (m, k), by the ridge 1 + off_diagonal_sd sqrt(k) / 2.

    `matrices` has shape (m, k + 1, k + 1), `off_diagonal_sds` shape (m,).
    """
    gram = _nearest_gram(matrices[:, :-1, :-1], records, np.inf)
    size = gram.shape[-1]
    ridges = 1.0 + 0.5 * off_diagonal_sds * size**0.5
    ridged = gram + ridges[:, None, None] * np.eye(size)
    return np.asarray(np.linalg.solve(ridged, matrices[:, :-1, -1:])[..., 0], dtype=np.float64)


def _nearest_gram(matrices: Floats, records: float, largest_square: float) -> Floats:
    """Return moment matrices of designs, with eigenvalues that noise drove below zero put back.

    `matrices`, shape (..., k, k), are symmetric. They are scaled down where their trace, the rows'
    squared norms, is more than so many `records` can have.
    """
    values, vectors = np.linalg.eigh(matrices)
    raised = np.maximum(values, 1e-4 * records)
    traces = raised.sum(axis=-1, keepdims=True)
    raised = raised * np.minimum(1.0, records * largest_square / traces)
    return np.asarray((vectors * raised[..., None, :]) @ np.swapaxes(vectors, -1, -2))


def _spreads(means: Floats, variances: Floats, gram: Floats, moments: NoisyMoments) -> Floats:
    """Return the covariances of z_u - Z_W b, shape (g, k, k): s^2 W + Omega(b) at each b = mean.

    Row j of E (b, -1) has variance off^2 (1 + |b|^2 - b_j^2) + diag^2 b_j^2, rows j and k have
    covariance off^2 b_j b_k.
    """
    off_variance = moments.off_diagonal_sd**2
    excess = moments.diagonal_sd**2 - 2.0 * off_variance
    squares = means**2
    spreads = variances[:, None, None] * gram
    spreads += off_variance * means[:, :, None] * means[:, None, :]
    diagonal = np.arange(len(gram))
    lengths = squares.sum(axis=1, keepdims=True)
    spreads[:, diagonal, diagonal] += off_variance * (1.0 + lengths) + excess * squares
    return spreads


def _fits(
    variances: Floats,
    start: Floats,
    gram: Floats,
    moments: NoisyMoments,
    precision: Floats,
) -> _Fits:
    """Iterate generalised least squares to its fixed point for each residual variance, shape (g,).

    All at once: a single small system takes longer to call for than to solve.
    """
    cross, square = moments.matrix[:-1, -1], float(moments.matrix[-1, -1])
    shape = (len(variances), *gram.shape)
    means = np.tile(start, (len(variances), 1))
    spreads, covariances = np.empty(shape), np.empty(shape)
    parts, last_steps = np.ones(len(variances)), np.full(len(variances), np.inf)
    moving = np.arange(len(variances))
    for _ in range(_ITERATIONS):
        spreads[moving] = _spreads(means[moving], variances[moving], gram, moments)
        weighted = np.linalg.solve(spreads[moving], gram)
        covariances[moving] = np.linalg.inv(gram @ weighted + precision)
        updates = (covariances[moving] @ (cross @ weighted)[:, :, None])[:, :, 0]
        steps = np.abs(updates - means[moving]).max(axis=1)
        # whole steps may oscillate under heavy noise
        parts[moving[steps > 0.5 * last_steps[moving]]] = 0.5
        last_steps[moving] = steps
        means[moving] += parts[moving, None] * (updates - means[moving])
        moving = moving[steps >= _TOLERANCE]
        if not moving.size:
            break
    gaps = means @ gram - cross
    joints = gram @ covariances
    # The residual sums of squares averaged over the posteriors of b, and their variances.
    residuals = square + np.sum(means * (gaps - cross), axis=1)
    residuals += np.trace(joints, axis1=1, axis2=2)
    squares = np.column_stack([means, np.ones(len(means))]) ** 2
    totals, fourths = squares.sum(axis=1), (squares**2).sum(axis=1)
    residual_variances = (
        2.0 * moments.off_diagonal_sd**2 * (totals**2 - fourths)
        + moments.diagonal_sd**2 * fourths
        + 2.0 * moments.records * variances**2
        + (moments.records_sd * variances) ** 2
        + 4.0 * _forms(gaps, covariances)
        + 2.0 * np.sum(joints * np.swapaxes(joints, 1, 2), axis=(1, 2))
    )
    solved = np.linalg.solve(spreads, gaps[:, :, None])[:, :, 0]
    log_weights = -0.5 * (
        (residuals - moments.records * variances) ** 2 / residual_variances
        + np.log(residual_variances)
        + np.sum(gaps * solved, axis=1)
        + np.linalg.slogdet(spreads)[1]
        + _forms(means, precision)
        - np.linalg.slogdet(covariances)[1]
    )
    return _Fits(means=means, covariances=covariances, log_weights=log_weights)


def _forms(vectors: Floats, matrices: Floats) -> Floats:
    """Return v'M v for each vector, shape (g,)."""
    return np.asarray(np.sum(vectors * (matrices @ vectors[:, :, None])[:, :, 0], axis=1))
