"""AdaSSP and boosted AdaSSP, rivals that are told the bounds and take them for columns' spreads."""

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
    rounds: int = 1,
    cut: float = 1.0,
) -> Floats:
    """Return its coefficients of the last column, (n, m), on the others, the intercept first.

    With one round it is AdaSSP: Wang 2018 (arXiv:1803.02596), algorithm 2. With more it is boosted
    AdaSSP: Tang et al. 2023 (arXiv:2303.03451), algorithm 1, which fits what is left of the target
    in each round, cut at `cut` half ranges of it, by the products of the first. A least eigenvalue,
    the features' products and those with the target in each round are `rounds` + 2 Gaussian
    releases of one price, composed exactly; neighbours differ by replacement. The noise of clients
    is calibrated for `absent` of them. `bounds` has shape (m, 2).
    """
    excess = math.sqrt(len(values) / (len(values) - absent))
    each = excess * math.sqrt(rounds + 2.0) / Cap(epsilon=epsilon, delta=delta).whole.mu
    middles, halves = bounds.mean(axis=1), (bounds[:, 1] - bounds[:, 0]) / 2.0
    boxed = np.clip((values - middles) / halves, -1.0, 1.0)
    rows, target = np.column_stack([np.ones(len(boxed)), boxed[:, :-1]]), boxed[:, -1]
    size = rows.shape[1]
    sd = math.sqrt(2.0) * size * each
    gram = rows.T @ rows
    least = float(np.linalg.eigvalsh(gram)[0]) + float(generator.normal(0.0, sd))
    ridge = sd / math.sqrt(2.0) * math.sqrt(size * math.log(2.0 * size**2 / 0.05))
    ridge = max(0.0, ridge - max(least - 1.645 * sd, 0.0))
    upper = np.triu(generator.normal(0.0, sd / math.sqrt(2.0), gram.shape), 1)
    noise = upper + upper.T + np.diag(generator.normal(0.0, sd, size))
    inverse = np.linalg.inv(gram + noise + ridge * np.eye(size))
    cross_sd = 2.0 * cut * math.sqrt(size) * each
    coefficients = np.zeros(size)
    for _ in range(rounds):
        left = np.clip(target - rows @ coefficients, -cut, cut)
        cross = rows.T @ left + generator.normal(0.0, cross_sd, size)
        coefficients = coefficients + inverse @ cross
    coefficients = coefficients * halves[-1]
    slopes = coefficients[1:] / halves[:-1]
    return np.append(coefficients[0] + middles[-1] - slopes @ middles[:-1], slopes)
