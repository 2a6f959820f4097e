"""Posteriors under several priors, averaged by how likely each prior is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Solution:
    """Parameters, shape (p,), and their covariance by noise and one prior, (p, p)."""

    mean: Floats
    covariance: Floats
    log_evidence: float


def weights_of(logs: Floats) -> Floats:
    """Return the weights, any shape, of which these are the logarithms but for a constant."""
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def averaged(logs: Floats, means: Floats, covariances: Floats) -> tuple[Floats, Floats]:
    """Return mean, shape (p,), and covariance of a mixture with log weights `logs`, any shape."""
    weights, size = weights_of(logs).ravel(), means.shape[-1]
    parts = means.reshape(-1, size)
    mean: Floats = weights @ parts
    away = parts - mean
    covariance = np.tensordot(weights, covariances.reshape(-1, size, size), 1)
    return mean, covariance + away.T @ (weights[:, None] * away)


def averaged_over(
    sds: Iterable[float], solve: Callable[[float, Floats], Solution], start: Floats
) -> tuple[Floats, Floats]:
    """Return mean and covariance, averaged over what standard deviation parameters share.

    `solve` returns the posterior under one of `sds`, found from a point: `start`, shape (p,), or
    the mean under the one before.
    """
    found: list[Solution] = []
    for sd in sds:
        found.append(solve(sd, found[-1].mean if found else start))
    return averaged(
        np.array([each.log_evidence for each in found]),
        np.array([each.mean for each in found]),
        np.array([each.covariance for each in found]),
    )
