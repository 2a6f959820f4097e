"""Computes a posterior from a path of noisy gradients at public points.

Gradients of the log-likelihood are modelled as linear, b - H (u - c), near the end of the path, or
with a quadratic part where the caller expects one. Each is a measurement with known privacy noise
and, in a batch, sampling noise. The posterior averages over b and H, from public sums alone.
Formulas and limits: docs/mathematics.md, section 8.

The curvature H is drawn given the path. Model: y_t = b - H (u_t - c) + e_t, H symmetric and
positive semidefinite, e_t ~ N(0, Sigma). In coordinates in which Sigma is the identity, and then in
the eigenbasis of the scatter of the points, the entries of H on and above the diagonal are
independent normals; that H be semidefinite truncates them. Quadratic parts of gradients (`Bend`)
are subtracted first.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final

import numpy as np

from shoal_protocol.queries.design import Floats
from shoal_studies.catalogue.variational.posterior import MOST_CORRELATED, Convergence
from shoal_studies.posteriors.base import semidefinite

_STEPS, _WARM_UP = 60, 20  # of each chain
_CHAINS: Final = ((16, 32), (64, 8))  # by dimension at most: larger ones are slower
_SHRINKS: Final = 100  # of a slice; each takes about a third of it


@dataclass(frozen=True)
class NormalCurvature:
    """H = frame h frame' with independent normal h_ij, i <= j: `mean` and `sd`, shapes (d, d)."""

    frame: Floats
    mean: Floats
    sd: Floats

    @property
    def centre(self) -> Floats:
        """The mean of H without its negative eigenvalues, shape (d, d)."""
        return semidefinite(self._uncut)

    @property
    def signals(self) -> Floats:
        """H_jj in their standard errors, shape (d,); of no curvature noise about 0."""
        variances = self.sd**2 * (2.0 - np.eye(len(self.sd)))  # off the diagonal h_ij counts twice
        errors = np.sqrt(np.einsum("ji,jk,ik->j", self.frame**2, self.frame**2, variances))
        return np.asarray(np.diagonal(self._uncut) / errors)

    @property
    def _uncut(self) -> Floats:
        return symmetric(self.frame @ self.mean @ self.frame.T)


def fitted(points: Floats, gradients: Floats, noise: Floats, *, largest: float) -> NormalCurvature:
    """Return the regression of centred `gradients` on centred `points`, both shape (T, d).

    `noise`, shape (d, d), is the covariance of one round's; `largest` is a scale that no eigenvalue
    of H exceeds: its normal prior, of that standard deviation, keeps apart what no point explored.
    """
    values, vectors = np.linalg.eigh(noise)
    root = (vectors * np.sqrt(values)) @ vectors.T
    inverse = (vectors / np.sqrt(values)) @ vectors.T
    points, gradients = points @ root, gradients @ inverse
    scatter, basis = np.linalg.eigh(points.T @ points)
    scatter = np.maximum(scatter, 0.0)
    crossed = -(gradients.T @ points)
    precision = scatter[:, None] + scatter[None, :] + 2.0 * (values[0] / largest) ** 2
    mean = basis.T @ (crossed + crossed.T) @ basis / precision
    sd = np.sqrt(1.0 / precision)
    sd[np.diag_indices(len(sd))] *= np.sqrt(2.0)
    return NormalCurvature(root @ basis, symmetric(mean), sd)


@dataclass(frozen=True)
class Bend:
    """Quadratic parts of gradients: a_j (u - c)' H (u - c) in coordinate j.

    Exactly that where j is the logarithm of a location-scale family's scale: then a_j is 1.
    `gradients`, shape (T, d), are those parts less their mean, times the rounds' weights' roots;
    `mean`, shape (d,), is the mean, and `error`, (d, d), the covariance of what is not known of it.
    """

    gradients: Floats
    mean: Floats
    error: Floats

    @staticmethod
    def none(size: int) -> "Bend":
        """Return the bend of `size` linear gradients: none."""
        return Bend(np.zeros((1, size)), np.zeros(size), np.zeros((size, size)))


def bend_of(
    points: Floats,
    gradients: Floats,
    curvature: NormalCurvature,
    noise: Floats,
    roots: Floats,
    *,
    prior_sd: float,
) -> Bend:
    """Return how gradients bend about a line of this curvature; `prior_sd` is that of each a_j.

    `points` and `gradients` are as in `fitted`, times `roots`, shape (T,), of the rounds' weights;
    `noise`, shape (d, d), is the covariance of a round of weight 1.
    """
    size, centre = len(noise), curvature.centre
    squares = np.einsum("ti,ij,tj->t", points, centre, points)
    mean = float(squares.sum() / (roots**2).sum())
    squares = squares / roots - roots * mean
    precision = np.linalg.inv(noise)
    known = float(squares @ squares) * precision + np.eye(size) / prior_sd**2
    unknown: Floats = symmetric(np.asarray(np.linalg.inv(known), dtype=np.float64))
    bend = unknown @ precision @ ((gradients + points @ centre).T @ squares)
    return Bend(np.outer(squares, bend), mean * bend, mean**2 * unknown)


def drawn(curvature: NormalCurvature, generator: np.random.Generator) -> Floats:
    """Return draws of H given that it is positive definite, shape (draws, d, d).

    Elliptical slice sampling (Murray, Adams and MacKay 2010, arXiv:1001.0175): what is cut off has
    likelihood 0, all else 1.
    """
    size = len(curvature.mean)
    chains = next(chains for most, chains in _CHAINS if size <= most)
    values, vectors = np.linalg.eigh(curvature.mean)
    start = (vectors * np.maximum(values, np.diagonal(curvature.sd).mean())) @ vectors.T
    now = np.repeat(start[None] - curvature.mean, chains, axis=0)
    kept = []
    for step in range(_STEPS):
        other = _normal(curvature.sd, chains, generator)
        now = _moved(now, other, curvature.mean, generator)
        if step >= _WARM_UP:
            kept.append(now)
    inner = np.concatenate(kept) + curvature.mean
    return symmetric(curvature.frame @ inner @ curvature.frame.T)


def _moved(now: Floats, other: Floats, mean: Floats, generator: np.random.Generator) -> Floats:
    """Take each chain to a place on its ellipse that is not cut off; `now` itself is one."""
    angle = generator.random(len(now)) * 2.0 * np.pi
    least, most = angle - 2.0 * np.pi, angle.copy()
    moved, left = now.copy(), np.arange(len(now))
    for _ in range(_SHRINKS):
        turn = angle[left][:, None, None]
        tried = now[left] * np.cos(turn) + other[left] * np.sin(turn)
        allowed = np.linalg.eigvalsh(tried + mean)[:, 0] > 0.0
        moved[left[allowed]] = tried[allowed]
        left = left[~allowed]
        if not len(left):
            break
        below = angle[left] < 0.0
        least[left[below]], most[left[~below]] = angle[left[below]], angle[left[~below]]
        angle[left] = least[left] + (most[left] - least[left]) * generator.random(len(left))
    return moved


def _normal(sd: Floats, count: int, generator: np.random.Generator) -> Floats:
    """Return symmetric matrices of independent normals, shape (count, d, d)."""
    upper = np.triu(generator.standard_normal((count, *sd.shape)))
    return np.asarray((upper + np.swapaxes(np.triu(upper, 1), 1, 2)) * sd)


def symmetric(matrices: Floats) -> Floats:
    """Return the symmetric part of matrices, shape (..., d, d)."""
    return np.asarray(0.5 * (matrices + np.swapaxes(matrices, -1, -2)))


Gradient = Callable[[Floats], Floats]

_FEWEST_ROUNDS: Final = 10  # in the regression, and
_ROUNDS_FOR_EACH: Final = 2  # for each of its d + 1 numbers in a row

_SEED: Final = 2407_14426
_PASSES: Final = 4  # in which noise and curvature, or answer and prior, are fitted in turn
_DRAWS_EACH: Final = 8  # for each curvature
_MATCHED: Final = 0.05, 0.95  # quantiles that the normal distribution has in common with the draws
_LEAST: Final = 1e-12  # precision of a prior that has none


@dataclass(frozen=True)
class Path:
    """Measurements of T rounds: gradients of the likelihood of all clients, at public points.

    `points` and `gradients` have shape (T, d), `noise` shape (T,): the variance of the privacy
    noise in each coordinate of a gradient. `sampling` times the likelihood's curvature is the
    covariance that who was drawn adds to each, 0 where all are asked. `largest` is what no
    eigenvalue of the curvature exceeds, and `prior` the gradient of the log prior density. `bend`
    is the prior standard deviation of how gradients bend (`curvature.Bend`), 0 if they do not.
    `may_clip` unless it is certain that no record's gradient was clipped.
    """

    points: Floats
    gradients: Floats
    noise: Floats
    sampling: float
    largest: float
    prior: Gradient
    bend: float = 0.0
    may_clip: bool = True

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.points)

    def part(self, start: int, end: int | None = None) -> "Path":
        """Return the rounds from number `start` on, those before `end`."""
        rounds = slice(start, end)
        return replace(
            self,
            points=self.points[rounds],
            gradients=self.gradients[rounds],
            noise=self.noise[rounds],
        )


@dataclass(frozen=True)
class Inferred:
    """A normal distribution in unconstrained space: `location` and `scale`, shapes (d,).

    `factor`, shape (d, d), is the lower Cholesky factor of the correlations, None if there are
    none; `convergence` is None if the noise is not in it.
    """

    location: Floats
    scale: Floats
    factor: Floats | None = None
    convergence: Convergence | None = None


@dataclass(frozen=True)
class _Line:
    """Gradients along a path as a line: gradient b at c with covariance `error`, and H.

    `bent` is by how much the path's mean gradient is another one, `signals`, shape (d,), how far
    H's diagonal is above 0, in its standard errors.
    """

    centre: Floats
    gradient: Floats
    bent: Floats
    error: Floats
    residual: Floats  # covariance of one round's noise
    curvatures: Floats  # draws, shape (draws, d, d)
    signals: Floats


def inferred(path: Path) -> Inferred | None:
    """Return the posterior that knows of the noise, or None where the path is too short for it.

    None too where there are more numbers than a posterior has correlations of.

    The first quarter of the path is the approach, and is left out; so is the second one, if slopes
    in it show that the path was still approaching.
    """
    size, half, quarter = path.points.shape[1], path.rounds // 2, path.rounds // 4
    fewest = max(_FEWEST_ROUNDS, _ROUNDS_FOR_EACH * (size + 1))
    if path.rounds - quarter < fewest or size > MOST_CORRELATED:
        return None
    generator = np.random.default_rng([_SEED, path.rounds, size])
    used = later = path.part(half)
    line = _line(later, generator)
    slopes = _slopes(path.part(quarter, half), line.residual)
    if np.all(np.abs(slopes) < Convergence.limit_for(size)):
        used = path.part(quarter)
        line = _line(used, generator)
    return _posterior(used, later, line, generator)


def _line(path: Path, generator: np.random.Generator) -> _Line:
    size = path.points.shape[1]
    variance = float(1.0 / np.mean(1.0 / path.noise))
    weights = variance / path.noise
    total = weights.sum()
    centre, gradient = (
        (weights[:, None] * each).sum(axis=0) / total for each in (path.points, path.gradients)
    )
    roots = np.sqrt(weights)[:, None]
    points, gradients = roots * (path.points - centre), roots * (path.gradients - gradient)
    privacy = variance * np.eye(size)
    residual = privacy
    curvature = fitted(points, gradients, residual, largest=path.largest)
    straight, bend = gradients, Bend.none(size)
    for _ in range(_PASSES if path.sampling > 0.0 or path.bend > 0.0 else 0):
        if path.bend > 0.0:
            bend = bend_of(points, gradients, curvature, residual, roots[:, 0], prior_sd=path.bend)
            straight = gradients - bend.gradients
        if path.sampling > 0.0:
            sampled = path.sampling * curvature.centre
            left = straight + points @ curvature.centre
            dispersion = _dispersion(left, variance, float(np.trace(sampled)))
            residual = privacy + dispersion * sampled
        curvature = fitted(points, straight, residual, largest=path.largest)
    error = residual / total + bend.error
    draws = drawn(curvature, generator)
    at = gradient - bend.mean
    return _Line(centre, at, bend.mean, error, residual, draws, curvature.signals)


def _dispersion(residuals: Floats, privacy: float, expected: float) -> float:
    """Return how many times the scatter that the model expects who was drawn adds, about 1.

    `expected` is its trace. The residuals' own answer is drawn towards 1, known to .5.
    """
    rounds, size = residuals.shape
    found = float(np.sum(residuals**2)) / max(rounds - size - 1, 1)
    if expected <= 0.0:
        return 1.0
    error = np.sqrt(2.0 / (rounds * size)) * found / expected
    ratio = float(np.clip((found - size * privacy) / expected, 0.1, 10.0))
    return float((ratio / error**2 + 4.0) / (1.0 / error**2 + 4.0))


def _slopes(path: Path, residual: Floats) -> Floats:
    """Return the mean slope of the log posterior along a path, in its standard errors, (d,)."""
    slope = path.gradients.mean(axis=0) + path.prior(path.points.mean(axis=0))
    return np.asarray(slope / np.sqrt(np.diagonal(residual) / path.rounds))


def _posterior(used: Path, later: Path, line: _Line, generator: np.random.Generator) -> Inferred:
    location = line.centre
    for _ in range(_PASSES - 1):
        location = _answers(used.prior, line, location)[0].mean(axis=0)
    means, covariances, prior = _answers(used.prior, line, location)
    roots = np.linalg.cholesky(covariances)
    standard = generator.standard_normal((_DRAWS_EACH, *means.shape))
    draws = (means + np.einsum("kij,rkj->rki", roots, standard)).reshape(-1, len(location))
    low, high = np.quantile(draws, _MATCHED, axis=0)
    best, scale = 0.5 * (low + high), 0.5 * (high - low) / NormalDist().inv_cdf(_MATCHED[1])
    covariance = covariances.mean(axis=0) + np.atleast_2d(np.cov(means.T, bias=True))
    variance = np.diagonal(covariance)
    without = np.linalg.inv(line.curvatures + prior).mean(axis=0)
    share = np.clip(1.0 - np.diagonal(without) / variance, 0.0, 1.0)
    # The spread is about where the path was: its mean square distance from the approximation.
    # The path settles where mean gradients are 0, which is elsewhere if they bend.
    unbent = replace(line, gradient=line.gradient + line.bent)
    settled = _answers(used.prior, unbent, location)[0]
    centre = later.points.mean(axis=0) + (means - settled).mean(axis=0)
    correlated = covariance * np.outer(scale, scale) / np.sqrt(np.outer(variance, variance))
    about = correlated + np.outer(best - centre, best - centre)
    sd = np.sqrt(np.diagonal(about))
    factor = np.linalg.cholesky(semidefinite(about / np.outer(sd, sd), 1e-9))
    factor = factor / np.linalg.norm(factor, axis=1, keepdims=True)
    convergence = Convergence(
        rounds=used.rounds,
        slopes=tuple(_slopes(later, line.residual).tolist()),
        distances=tuple((np.abs(best - centre) / scale).tolist()),
        noise_shares=tuple(share.tolist()),
        scatters=tuple((used.points.var(axis=0) / scale).tolist()),
        signals=tuple(line.signals.tolist()),
        may_clip=used.may_clip,
    )
    return Inferred(centre, sd, factor, convergence)


def _answers(prior_gradient: Gradient, line: _Line, near: Floats) -> tuple[Floats, Floats, Floats]:
    """Return means and covariances of u given each drawn curvature, and the prior's curvature.

    Shapes (draws, d), (draws, d, d), (d, d). The prior is taken as normal, by its slope at `near`.
    """
    # What is known of the slope at c has covariance H + error: theirs who answered, and the noise.
    gain = np.linalg.solve(line.curvatures + line.error, line.curvatures)
    prior = semidefinite(_curvature_of(prior_gradient, near), _LEAST)
    known = symmetric(line.curvatures @ gain) + prior
    covariances: Floats = symmetric(np.asarray(np.linalg.inv(known), dtype=np.float64))
    pulls = np.einsum("kji,j->ki", gain, line.gradient)
    pulls = pulls + prior_gradient(near) + prior @ (near - line.centre)
    return line.centre + np.einsum("kij,kj->ki", covariances, pulls), covariances, prior


def prior_deviations(gradient: Gradient, point: Floats) -> Floats:
    """Return standard deviations of a prior that is taken as normal near a point, shape (d,)."""
    precisions = np.maximum(np.diagonal(_curvature_of(gradient, point)), _LEAST)
    return np.asarray(precisions**-0.5)


def _curvature_of(gradient: Gradient, point: Floats) -> Floats:
    """Return minus the derivative of a gradient at a point, shape (d, d), by differences."""
    step = 1e-4 * np.maximum(1.0, np.abs(point))
    rows = [gradient(point - each) - gradient(point + each) for each in np.diag(step)]
    return symmetric(np.array(rows) / (2.0 * step)[:, None])
