"""AdaSSP, a rival that is told the bounds and takes them for the columns' spreads."""

import math

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.privacy.accounting import Cap

Floats = NDArray[np.float64]


def ada_ssp(
    values: Floats,
    bounds: Floats,
    generator: np.random.Generator,
    *,
    epsilon: float,
    delta: float,
    absent: int,
) -> Floats:
    """Return its coefficients of the last column, (n, m), on the others, the intercept first.

    Wang 2018 (arXiv:1803.02596), algorithm 2, its three releases composed as one Gaussian; the
    noise of clients is calibrated for `absent` of them. `bounds` has shape (m, 2).
    """
    excess = math.sqrt(len(values) / (len(values) - absent))
    each = excess * math.sqrt(3.0) / Cap(epsilon=epsilon, delta=delta).whole.mu
    middles, halves = bounds.mean(axis=1), (bounds[:, 1] - bounds[:, 0]) / 2.0
    boxed = np.clip((values - middles) / halves, -1.0, 1.0)
    rows = np.column_stack([np.ones(len(boxed)), boxed[:, :-1]])
    size = rows.shape[1]
    sd = math.sqrt(2.0) * size * each
    gram = rows.T @ rows
    least = float(np.linalg.eigvalsh(gram)[0]) + float(generator.normal(0.0, sd))
    ridge = sd / math.sqrt(2.0) * math.sqrt(size * math.log(2.0 * size**2 / 0.05))
    ridge = max(0.0, ridge - max(least - 1.645 * sd, 0.0))
    upper = np.triu(generator.normal(0.0, sd / math.sqrt(2.0), gram.shape), 1)
    noise = upper + upper.T + np.diag(generator.normal(0.0, sd, size))
    cross_sd = 2.0 * math.sqrt(size) * each
    cross = rows.T @ boxed[:, -1] + generator.normal(0.0, cross_sd, size)
    found = np.linalg.solve(gram + noise + ridge * np.eye(size), cross) * halves[-1]
    slopes = found[1:] / halves[:-1]
    return np.append(found[0] + middles[-1] - slopes @ middles[:-1], slopes)
