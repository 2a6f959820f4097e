"""The methods of Heikkilä et al. 2017 as published, for comparison only: NOT private as claimed.

Written from the paper's section 3.2.1 and the known facts of its experiments. Noise is numpy's, in
floats; the first round's sensitivity is too small, eq. (1) is used where it does not hold, and
methods without projection assume bounds that they never enforce: docs/figures.md says what each
really costs.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FIRST_ROUND: Final = 0.3
"""Share of epsilon and of delta that the round which measures spreads is given."""

SMALLEST_VARIANCE: Final = 0.5
"""What a variance that noise made negative is replaced by."""

METHODS: Final = ("np", "proj_np", "ta", "proj_ta", "ddp", "proj_ddp", "input_perturbation")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One published experiment at one price.

    `assumed` bounds of features and target in the round that measures spreads; `unclipped` bounds
    that methods without projection take for granted; `first_round_of_ta` those that the trusted
    aggregator takes there; `thresholds` of features and target in units of the spreads; `capped`:
    whether thresholds are held to `assumed`.
    """

    epsilon: float
    delta: float
    assumed: tuple[float, float]
    unclipped: tuple[float, float]
    first_round_of_ta: tuple[float, float]
    thresholds: tuple[float, float]
    capped: bool


def classical_sd(sensitivity: float, *, epsilon: float, delta: float) -> float:
    """Return eq. (1)'s standard deviation, valid for `epsilon` below 1 only."""
    return math.sqrt(2.0 * math.log(1.25 / delta)) * sensitivity / epsilon


def fit(rows: Floats, setting: Setting, generator: np.random.Generator) -> dict[str, Floats]:
    """Return each method's coefficients, shape (d,), for `rows`, shape (n, d + 1), target last."""
    size = len(rows)
    whole = {"epsilon": setting.epsilon, "delta": setting.delta}
    second = {key: (1.0 - FIRST_ROUND) * value for key, value in whole.items()}
    assumed = _per_column(setting.assumed, rows)
    unclipped = _per_column(setting.unclipped, rows)
    weights = _per_column(setting.thresholds, rows)

    ddp = weights * _spreads_of_ddp(rows, setting, generator)
    if setting.capped:
        ddp = np.minimum(ddp, assumed)
    ta = weights * _spreads_of_ta(rows, setting, generator)
    by_ddp, by_ta = (np.clip(rows, -bounds, bounds) for bounds in (ddp, ta))
    distributed = math.sqrt(size / (size - 1.0))  # Theorem 1 with no colluders
    plain_sd = classical_sd(moment_sensitivity(unclipped), **whole)
    ddp_sd = classical_sd(moment_sensitivity(ddp), **second)
    ta_sd = classical_sd(moment_sensitivity(ta), **second)
    return {
        "np": _regression(rows, 0.0, generator),
        "proj_np": _regression(by_ddp, 0.0, generator),
        "ta": _regression(rows, plain_sd, generator),
        "proj_ta": _regression(by_ta, ta_sd, generator),
        "ddp": _regression(rows, distributed * plain_sd, generator),
        "proj_ddp": _regression(by_ddp, distributed * ddp_sd, generator),
        "input_perturbation": _regression(rows, math.sqrt(size) * plain_sd, generator),
    }


def moment_sensitivity(bounds: Floats) -> float:
    """Return the paper's L2 sensitivity of X'X and X'y for columns within `bounds`, target last."""
    squares = bounds[:-1] ** 2
    pairs = 4.0 * np.triu(np.outer(squares, squares), 1).sum()
    return math.sqrt(float(squares @ squares + pairs + 4.0 * squares.sum() * bounds[-1] ** 2))


def _per_column(bounds: tuple[float, float], rows: Floats) -> Floats:
    features, target = bounds
    return np.array([features] * (rows.shape[1] - 1) + [target])


def _spreads_of_ddp(rows: Floats, setting: Setting, generator: np.random.Generator) -> Floats:
    """Measure root mean squares over the clients; the sensitivity lacks a square, as published."""
    bounds = _per_column(setting.assumed, rows)
    size = len(rows)
    sd = _first_round_sd(bounds, setting) * math.sqrt(size / (size - 1.0))
    sums = (np.clip(rows, -bounds, bounds) ** 2).sum(axis=0)
    return _spreads((sums + sd * generator.standard_normal(len(sums))) / size)


def _spreads_of_ta(rows: Floats, setting: Setting, generator: np.random.Generator) -> Floats:
    """Measure variances at the trusted aggregator, without clipping; again without the square."""
    bounds = _per_column(setting.first_round_of_ta, rows)
    sd = _first_round_sd(bounds, setting) / len(rows)
    return _spreads(rows.var(axis=0) + sd * generator.standard_normal(rows.shape[1]))


def _first_round_sd(bounds: Floats, setting: Setting) -> float:
    return classical_sd(
        float(np.linalg.norm(bounds)),
        epsilon=FIRST_ROUND * setting.epsilon,
        delta=FIRST_ROUND * setting.delta,
    )


def _spreads(variances: Floats) -> Floats:
    return np.sqrt(np.where(variances > 0.0, variances, SMALLEST_VARIANCE))


def _regression(rows: Floats, noise_sd: float, generator: np.random.Generator) -> Floats:
    """Return the posterior mean under N(0, I) and unit noise, from noisy X'X and X'y.

    Eigenvalues of X'X are replaced by their absolute values.
    """
    features = rows.shape[1] - 1
    moments = rows[:, :-1].T @ rows
    noise = noise_sd * generator.standard_normal(moments.shape)
    square = noise[:, :-1]
    gram = moments[:, :-1] + np.tril(square) + np.tril(square, -1).T
    values, vectors = np.linalg.eigh(gram)
    mended = (vectors * np.abs(values)) @ vectors.T
    coefficients: Floats = np.linalg.solve(mended + np.eye(features), moments[:, -1] + noise[:, -1])
    return coefficients
