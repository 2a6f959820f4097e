"""The simulations behind the figures of Draw and Discard.

The chains know none of the formulas that they are compared with, and the crowds take the very steps
that clients take. numpy draws everything, from fixed seeds: the same figures every time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from figures.draw_and_discard.chains import lifetimes, noisy_instances
from figures.draw_and_discard.theorems import (
    contractions,
    discarded,
    expected_fixation_time,
    expected_lifetime,
    expected_rmse,
    pulled,
    spread_after,
    squared_error_after_turn,
    stationary_spread,
)
from figures.running import run_all
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.models import Family
from shoal_studies.crowds.simulation import Contributors, simulate

Floats = NDArray[np.float64]

SEED: Final = 2022
INSTANCES: Final = (2, 5, 10, 20, 50)

TRUTH: Final = (0.5, -0.4, 0.3, 0.0, 0.2, -0.1)
"""The intercept, then the coefficients of features that are uniform on [-1, 1]."""

RESIDUAL_SD: Final = 0.3
TARGETS: Final = {"linear": (-3.0, 3.0), "logistic": (0.0, 1.0), "poisson": (0.0, 20.0)}
"""Public bounds of the target: a linear one ends ten standard deviations away, a count at 20."""

CLIPS: Final = {"linear": 1.0, "logistic": 1.0, "poisson": 2.0}
"""Clip of a coordinate, over the learning rate, in units of the target."""

SETTINGS: Final = (
    (1.0, 1, 0.003),
    (1.0, 20, 0.03),
    (4.0, 1, 0.003),
    (4.0, 20, 0.03),
    (4.0, 100, 0.15),
)
"""Epsilon of a contribution, k, learning rate."""

TURNED_WEIGHT: Final = 1
TURN: Final = 0.8
"""How far the coefficient of `TURNED_WEIGHT` turns: from -0.4 to 0.4."""

TURN_SETTINGS: Final = ((1, 0.001), (1, 0.003), (20, 0.02), (20, 0.06), (100, 0.15))
"""k, learning rate; at epsilon 4."""

SLOPES: Final = {"linear": 1.0, "logistic": 0.230, "poisson": 1.73}
"""Means of mu'(x'b) at the truth, by 2 million records."""

SCORES: Final = {"linear": RESIDUAL_SD**2, "logistic": 0.230, "poisson": 1.73}
"""Variances of y given x, likewise: with the canonical link the same numbers."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is run."""

    instances: tuple[int, ...] = INSTANCES
    replicates: int = 4000
    updates: int = 200_000
    crowds: int = 128
    contributions: int = 200_000
    turned: int = 64_000  # contributions before the truth turns, and as many after that
    turning_crowds: int = 128


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Spread of k instances under noise of variance 1, from zero: means over R replicates."""

    updates: tuple[int, ...]
    means: tuple[float, ...]
    formula: tuple[float, ...]
    measured: float  # average of the last snapshots, in stationarity
    expected: float
    standard_error: float


@dataclass(frozen=True, kw_only=True)
class Discards:
    """What became of so many updates, each in a crowd of its own."""

    measured: float
    expected: float
    standard_error: float
    lifetime: tuple[float, float]  # measured, formula
    fixation: tuple[float, float]
    quantiles: tuple[int, ...]  # 5, 25, 50, 75, 95 % of the updates until it was decided


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Error of one crowd's averaged coefficients: root mean square over the 6 of them."""

    family: Family
    epsilon: float
    instances: int
    median: float
    quartiles: tuple[float, float]
    root_mean_square: float
    formula: float
    """What the formulas for a pull expect, which leave clipping and correlations out."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """How the averaged model follows a truth that turned: of the coefficient that did.

    All are by the contributions since then. `lags` and `errors` are what is left of the turn: its
    mean over crowds, and the root mean square with the noise; with what the formulas say.
    """

    instances: int
    learning_rate: float
    crowds: int
    contributions: tuple[int, ...]
    lags: tuple[float, ...]
    lag_formula: tuple[float, ...]
    errors: tuple[float, ...]
    error_formula: tuple[float, ...]
    spreads: tuple[float, ...]
    """Mean variance of the coefficient over instances."""


def run(
    size: Size, *, processes: int
) -> tuple[dict[int, Spread], dict[int, Discards], list[Accuracy], list[Turn]]:
    """Return spreads and discards by k, the accuracies of all families and settings, and turns."""
    settings = [(family, setting) for family in TARGETS for setting in SETTINGS]
    # long ones first
    units: list[Any] = [("accuracy", setting, size) for setting in settings]
    units += [("turn", setting, size) for setting in TURN_SETTINGS]
    units += [("spread", k, size) for k in reversed(size.instances)]
    units += [("discards", k, size) for k in reversed(size.instances)]
    found = run_all(_work, units, "Draw and Discard", processes=processes)
    by_kind: dict[str, list[tuple[Any, Any]]] = {}
    for (kind, what, _), result in zip(units, found, strict=True):
        by_kind.setdefault(kind, []).append((what, result))
    return (
        dict(sorted(by_kind["spread"])),
        dict(sorted(by_kind["discards"])),
        [result for _, result in by_kind["accuracy"]],
        [result for _, result in by_kind["turn"]],
    )


def _work(unit: Any) -> Spread | Discards | Accuracy | Turn:
    kind, what, size = unit
    if kind == "turn":
        return turn(what[0], what[1], size)
    if kind == "spread":
        return spread(what, size)
    return discards(what, size) if kind == "discards" else accuracy(what[0], what[1], size)


def spread(instances: int, size: Size) -> Spread:
    """Follow k instances that start alike, for 16 k^2 updates of Laplace noise of variance 1."""
    square = instances**2
    growing = sorted(
        {math.ceil(square * part / 16) for part in (1, 2, 3, 4, *range(6, 96, 3))} - {6 * square}
    )
    settled = [6 * square + square * part for part in range(11)]
    generator = np.random.default_rng([SEED, 1, instances])
    found = noisy_instances(
        instances=instances,
        replicates=size.replicates,
        updates=[*growing, *settled],
        noise=lambda count: generator.laplace(0.0, math.sqrt(0.5), count),
        generator=generator,
    )
    late = found.spread[len(growing) :].mean(axis=0)
    return Spread(
        updates=found.updates,
        means=tuple(float(each) for each in found.spread.mean(axis=1)),
        formula=tuple(
            spread_after(each, instances=instances, update_variance=1.0) for each in found.updates
        ),
        measured=float(late.mean()),
        expected=stationary_spread(instances=instances, update_variance=1.0),
        standard_error=float(late.std()) / math.sqrt(size.replicates),
    )


def discards(instances: int, size: Size) -> Discards:
    """Follow single updates until every instance holds them or none."""
    generator = np.random.default_rng([SEED, 2, instances])
    found = lifetimes(instances=instances, updates=size.updates, generator=generator)
    expected = discarded(instances)
    kept = found.decided[~found.lost]
    return Discards(
        measured=float(found.lost.mean()),
        expected=expected,
        standard_error=math.sqrt(expected * (1.0 - expected) / size.updates),
        lifetime=(float(found.decided.mean()), expected_lifetime(instances)),
        fixation=(float(kept.mean()) if kept.size else math.nan, expected_fixation_time(instances)),
        quantiles=tuple(
            int(each) for each in np.quantile(found.decided, [0.05, 0.25, 0.5, 0.75, 0.95])
        ),
    )


def glm_task(family: Family, epsilon: float, instances: int, learning_rate: float) -> CrowdTask:
    """Return the task: a clip of one or two learning rates, in units of the target."""
    lower, upper = TARGETS[family]
    return CrowdTask(
        family=family,
        features=tuple(
            ColumnBounds(name=f"x{number}", lower=-1.0, upper=1.0)
            for number in range(1, len(TRUTH))
        ),
        target=ColumnBounds(name="y", lower=lower, upper=upper),
        clip=CLIPS[family] * learning_rate / target_scale(family),
        epsilon=epsilon,
        learning_rate=learning_rate,
        instances=instances,
    )


def target_scale(family: Family) -> float:
    """Return by what a target is divided before it is learned."""
    return TARGETS["linear"][1] if family == "linear" else 1.0


def glm_contributors(
    family: Family, generator: np.random.Generator, coefficients: Sequence[float] = TRUTH
) -> Contributors:
    """Return contributors of the model that `coefficients` make; every record is a new one."""
    truth = np.array(coefficients)
    lower, upper = TARGETS[family]

    def pick(count: int, replicates: int) -> tuple[Floats, Floats]:
        rows = generator.uniform(-1.0, 1.0, (count, replicates, len(truth)))
        rows[..., 0] = 1.0
        predictors = rows @ truth
        if family == "linear":
            scatter = RESIDUAL_SD * generator.standard_normal(predictors.shape)
            targets = np.clip(predictors + scatter, lower, upper) / target_scale(family)
        elif family == "logistic":
            ones = generator.random(predictors.shape) < 1.0 / (1.0 + np.exp(-predictors))
            targets = ones.astype(np.float64)
        else:
            targets = np.minimum(generator.poisson(np.exp(predictors)), upper).astype(np.float64)
        return rows[..., None, :], targets[..., None]

    return pick


def accuracy(family: Family, setting: tuple[float, int, float], size: Size) -> Accuracy:
    """Let crowds learn the model from zero, and compare their averages with the truth."""
    epsilon, instances, learning_rate = setting
    task = glm_task(family, epsilon, instances, learning_rate)
    generator = np.random.default_rng(
        [SEED, 3, list(TARGETS).index(family), int(epsilon), instances]
    )
    [found] = simulate(
        task,
        glm_contributors(family, generator),
        generator,
        after=[size.contributions],
        replicates=size.crowds,
    )
    scale = target_scale(family)
    errors = (found / task.grid).mean(axis=1) * scale - np.array(TRUTH)
    each = np.sqrt((errors**2).mean(axis=1))
    learning = contractions(task, slope=SLOPES[family], score_variance=SCORES[family] / scale**2)
    formula = expected_rmse(
        learning, contributions=size.contributions, start_errors=[each / scale for each in TRUTH]
    )
    low, median, high = (float(part) for part in np.quantile(each, [0.25, 0.5, 0.75]))
    return Accuracy(
        family=family,
        epsilon=epsilon,
        instances=instances,
        median=median,
        quartiles=(low, high),
        root_mean_square=math.sqrt(float((errors**2).mean())),
        formula=formula * scale,
    )


def turning(first: Contributors, second: Contributors, *, at: int) -> Contributors:
    """Return contributors of `first`, and after `at` contributions of `second`: the truth turns."""
    made = 0

    def pick(count: int, replicates: int) -> tuple[Floats, Floats]:
        nonlocal made
        early = min(count, max(0, at - made))
        made += count
        parts = [
            contributors(several, replicates)
            for contributors, several in ((first, early), (second, count - early))
            if several
        ]
        rows, targets = zip(*parts, strict=True)
        return np.concatenate(rows), np.concatenate(targets)

    return pick


def turn(instances: int, learning_rate: float, size: Size) -> Turn:
    """Let crowds learn a linear model, then turn one coefficient of the truth."""
    task = glm_task("linear", 4.0, instances, learning_rate)
    generator = np.random.default_rng([SEED, 4, instances, round(1e4 * learning_rate)])
    scale = target_scale("linear")
    turned = np.array(TRUTH)
    turned[TURNED_WEIGHT] += TURN
    since = tuple(size.turned * part // 32 for part in range(33))
    found = simulate(
        task,
        turning(
            glm_contributors("linear", generator),
            glm_contributors("linear", generator, tuple(turned)),
            at=size.turned,
        ),
        generator,
        after=[size.turned + each for each in since],
        replicates=size.turning_crowds,
    )
    weights = found[..., TURNED_WEIGHT] / task.grid * scale
    errors = turned[TURNED_WEIGHT] - weights.mean(axis=2)
    learning = contractions(
        task, slope=SLOPES["linear"], score_variance=SCORES["linear"] / scale**2
    )[TURNED_WEIGHT]
    return Turn(
        instances=instances,
        learning_rate=learning_rate,
        crowds=size.turning_crowds,
        contributions=since,
        lags=tuple(map(float, errors.mean(axis=1))),
        lag_formula=tuple(TURN * pulled(learning, each) for each in since),
        errors=tuple(map(float, np.sqrt((errors**2).mean(axis=1)))),
        error_formula=tuple(
            scale * math.sqrt(squared_error_after_turn(learning, each, turn=TURN / scale))
            for each in since
        ),
        spreads=tuple(map(float, weights.var(axis=2, ddof=min(1, instances - 1)).mean(axis=1))),
    )
