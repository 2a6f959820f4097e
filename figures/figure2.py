"""Figure 2: test error on UCI's wines and abalone by method and price."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from figures import ours, rival
from figures.ada_ssp import ada_ssp
from figures.authors import DELTA, FIGURE2_EPSILONS
from figures.datasets import RANGE, UCI_SETS, Split, load_uci, scaled, splits
from figures.published import METHODS, Setting, fit
from figures.published_search import published_thresholds
from figures.running import run_all
from figures.scores import Scores, best_and_worst_search, stacked
from figures.sources import Files
from shoal_studies.catalogue.linear_regression import RegressionMethod

Floats = NDArray[np.float64]

SEED: Final = 2017
SEARCHES: Final = 14
"""Searches for the published thresholds at each price, each with its own seed.

The splits take them in turn; beside that every split is scored with each of them.
"""

SEARCH_REPEATS: Final = 20
ASSUMED: Final = (7.5, 7.5)  # the paper's section 4
UNCLIPPED: Final = (RANGE / 2.0, RANGE / 2.0)

ALGORITHM_2: Final[dict[RegressionMethod, str]] = {
    "box_projection": "algorithm2_box",
    "ball_projection": "algorithm2_ball",
}
"""The product's own Algorithm 2, with correct sensitivities, by method."""

Thresholds = dict[float, list[tuple[float, float]]]
"""By epsilon, one pair for each search."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is run: splits, draws of noise for each of them, prices."""

    splits: int = 25
    draws: int = 4
    epsilons: tuple[float, ...] = FIGURE2_EPSILONS
    searches: int = SEARCHES


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One split of one data set."""

    split: Split
    seed: tuple[int, ...]
    thresholds: Thresholds
    own_search: int
    draws: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """A data set's scores, its thresholds, and the error of predicting nothing but zero."""

    scores: Scores
    thresholds: Thresholds
    zero: float


def run(
    files: Files, *, as_authors: bool, size: Size, processes: int, names: tuple[str, ...] = ()
) -> dict[str, Found]:
    """Return what was found for each data set; errors are mean absolute, of the scaled target.

    Raises:
        DataUnavailable: a file is neither here nor to be had.
    """
    found = {}
    for place, name in enumerate(UCI_SETS):
        if names and name not in names:
            continue
        rows = scaled(load_uci(name, files, as_authors=as_authors))
        parts = splits(name, rows, size.splits)
        label = name if as_authors else f"{name}, read correctly"
        thresholds = _search(UCI_SETS[name].train, rows.shape[1] - 1, size, processes)
        units = [
            Unit(
                split=part,
                seed=(SEED, as_authors, place, number),
                thresholds=thresholds,
                own_search=number % size.searches,
                draws=size.draws,
            )
            for number, part in enumerate(parts)
        ]
        each = run_all(score, units, f"Figure 2: {label}", processes=processes)
        scores = best_and_worst_search(stacked(each), lower_is_better=True)
        zero = float(np.median([np.abs(part.test[:, -1]).mean() for part in parts]))
        found[name] = Found(scores=scores, thresholds=thresholds, zero=zero)
    return found


def score(unit: Unit) -> Scores:
    """Return every method's test errors on one split, shape (draws,) for each price.

    Our default estimator, which is slow, is drawn once; the noiseless one does not hang on the
    price.
    """
    scores: Scores = {}
    features = unit.split.test.shape[1] - 1
    noiseless = ours.fit_without_noise(ours.uci_task(features), unit.split.train).posterior
    default = ours.uci_task(features, "intervals")
    for place, (epsilon, pairs) in enumerate(unit.thresholds.items()):
        generator = np.random.default_rng([*unit.seed, place])
        setting = Setting(
            epsilon=epsilon,
            delta=DELTA,
            assumed=ASSUMED,
            unclipped=UNCLIPPED,
            first_round_of_ta=UNCLIPPED,
            thresholds=pairs[unit.own_search],
            capped=True,
        )
        draws = [_draw(unit.split, setting, generator) for _ in range(unit.draws)]
        for method in draws[0]:
            errors = np.array([each[method] for each in draws])
            scores.setdefault(method, {})[epsilon] = errors
        generator = np.random.default_rng([*unit.seed, place, 1])
        searched = [
            _error(unit.split, partial(_linear, fit(unit.split.train, each, generator)["proj_ddp"]))
            for each in (replace(setting, thresholds=pair) for pair in pairs)
        ]
        one = ours.fit(
            default, unit.split.train, epsilon=epsilon, delta=DELTA, generator=generator
        ).posterior
        for method, errors in {
            "proj_ddp_searches": np.array(searched),
            "default": np.array([_error(unit.split, partial(_predicted, one))]),
            "noiseless": np.array([_error(unit.split, partial(_predicted, noiseless))]),
        }.items():
            scores.setdefault(method, {})[epsilon] = errors
    return scores


def _error(split: Split, predict: Callable[[Floats], Floats]) -> float:
    return float(np.abs(predict(split.test[:, :-1]) - split.test[:, -1]).mean())


def _draw(split: Split, setting: Setting, generator: np.random.Generator) -> dict[str, float]:
    error = partial(_error, split)
    features = split.test.shape[1] - 1
    coefficients = fit(split.train, setting, generator)
    errors = {name: error(partial(_linear, coefficients[name])) for name in METHODS}
    price = {"epsilon": setting.epsilon, "delta": setting.delta}
    outcome = ours.fit(ours.uci_task(features), split.train, **price, generator=generator)
    errors["ours"] = error(partial(_predicted, outcome.posterior))
    other = rival.fit(split.train, bounds=ASSUMED, epsilon=setting.epsilon, generator=generator)
    errors["diffprivlib"] = error(partial(_linear, other))
    bounds = np.tile([-ours.UCI_BOUND, ours.UCI_BOUND], (split.train.shape[1], 1))
    found = ada_ssp(
        split.train, bounds, generator, epsilon=setting.epsilon, delta=setting.delta, absent=0
    )
    errors["adassp"] = error(lambda x: found[0] + x @ found[1:])
    for method in ALGORITHM_2:
        projection = ours.algorithm2_task(features, ASSUMED, method)
        cut = ours.fit(projection, split.train, **price, generator=generator).posterior
        errors[ALGORITHM_2[method]] = error(partial(_predicted, cut))
    return errors


def _predicted(posterior: ours.LinePosterior, x: Floats) -> Floats:
    return posterior.predict(x)[0]


def _linear(coefficients: Floats, x: Floats) -> Floats:
    product: Floats = x @ coefficients
    return product


@cache
def _search(records: int, features: int, size: Size, processes: int) -> Thresholds:
    """Search for all splits, and both ways of loading: only public sizes and the price go in."""
    wanted = [(epsilon, seed) for epsilon in size.epsilons for seed in range(size.searches)]
    what = f"published thresholds: {records} records, {features} features"
    pairs = run_all(partial(_searched, records, features), wanted, what, processes=processes)
    found: Thresholds = {}
    for (epsilon, _), pair in zip(wanted, pairs, strict=True):
        found.setdefault(epsilon, []).append(pair)
    return found


def _searched(records: int, features: int, wanted: tuple[float, int]) -> tuple[float, float]:
    epsilon, seed = wanted
    return published_thresholds(
        records=records,
        features=features,
        epsilon=epsilon,
        delta=DELTA,
        score="absolute_error",
        repeats=SEARCH_REPEATS,
        seed=seed,
    )
