"""Estimates a log-likelihood's curvature H from a path of noisy gradients, as draws of H.

Model: y_t = b - H (u_t - c) + e_t, H symmetric and positive semidefinite, e_t ~ N(0, Sigma). In
coordinates in which Sigma is the identity, and then in the eigenbasis of the scatter of the points,
the entries of H on and above the diagonal are independent normals (docs/mathematics.md, section 8);
that H be semidefinite truncates them. Quadratic parts of gradients (`Bend`) are subtracted first.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]

_STEPS, _WARM_UP = 60, 20  # of each chain
_CHAINS: Final = ((16, 32), (64, 8))  # by dimension at most: larger ones are slower
_SHRINKS: Final = 100  # of a slice; each takes about a third of it


@dataclass(frozen=True)
class NormalCurvature:
    """H = frame h frame' with independent normal h_ij, i <= j: `mean` and `sd`, shapes (d, d)."""

    frame: FloatMatrix
    mean: FloatMatrix
    sd: FloatMatrix

    @property
    def centre(self) -> FloatMatrix:
        """The mean of H without its negative eigenvalues, shape (d, d)."""
        return semidefinite(self._uncut)

    @property
    def signals(self) -> FloatVector:
        """H_jj in their standard errors, shape (d,); of no curvature noise about 0."""
        variances = self.sd**2 * (2.0 - np.eye(len(self.sd)))  # off the diagonal h_ij counts twice
        errors = np.sqrt(np.einsum("ji,jk,ik->j", self.frame**2, self.frame**2, variances))
        signals: FloatVector = np.diagonal(self._uncut) / errors
        return signals

    @property
    def _uncut(self) -> FloatMatrix:
        return symmetric(self.frame @ self.mean @ self.frame.T)


def fitted(
    points: FloatMatrix, gradients: FloatMatrix, noise: FloatMatrix, *, largest: float
) -> NormalCurvature:
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

    gradients: FloatMatrix
    mean: FloatVector
    error: FloatMatrix

    @staticmethod
    def none(size: int) -> "Bend":
        """Return the bend of `size` linear gradients: none."""
        return Bend(np.zeros((1, size)), np.zeros(size), np.zeros((size, size)))


def bend_of(
    points: FloatMatrix,
    gradients: FloatMatrix,
    curvature: NormalCurvature,
    noise: FloatMatrix,
    roots: FloatVector,
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
    unknown: FloatMatrix = symmetric(np.asarray(np.linalg.inv(known), dtype=np.float64))
    bend = unknown @ precision @ ((gradients + points @ centre).T @ squares)
    return Bend(np.outer(squares, bend), mean * bend, mean**2 * unknown)


def drawn(curvature: NormalCurvature, generator: np.random.Generator) -> FloatMatrix:
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


def _moved(
    now: FloatMatrix, other: FloatMatrix, mean: FloatMatrix, generator: np.random.Generator
) -> FloatMatrix:
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


def _normal(sd: FloatMatrix, count: int, generator: np.random.Generator) -> FloatMatrix:
    """Return symmetric matrices of independent normals, shape (count, d, d)."""
    upper = np.triu(generator.standard_normal((count, *sd.shape)))
    whole: FloatMatrix = (upper + np.swapaxes(np.triu(upper, 1), 1, 2)) * sd
    return whole


def symmetric(matrices: FloatMatrix) -> FloatMatrix:
    """Return the symmetric part of matrices, shape (..., d, d)."""
    part: FloatMatrix = 0.5 * (matrices + np.swapaxes(matrices, -1, -2))
    return part


def semidefinite(matrix: FloatMatrix, least: float = 0.0) -> FloatMatrix:
    """Return a symmetric matrix with its eigenvalues raised to `least` where they are below."""
    values, vectors = np.linalg.eigh(matrix)
    raised: FloatMatrix = (vectors * np.maximum(values, least)) @ vectors.T
    return raised
