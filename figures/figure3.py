"""Figure 3: rank correlation of predicted drug sensitivity on GDSC, by method and price."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from figures import ours, rival
from figures.authors import DELTA, FIGURE3_EPSILONS
from figures.datasets import GDSC_TEST, Gdsc, Split, gdsc_split, normalised
from figures.figure2 import ALGORITHM_2
from figures.published import FIRST_ROUND, METHODS, Setting, fit
from figures.published_search import published_thresholds
from figures.running import run_all
from figures.scores import Scores, best_and_worst_search, rank_correlation, stacked

Floats = NDArray[np.float64]

SEED: Final = 2018
FEWEST: Final = 2 * GDSC_TEST
"""Cell lines that a drug needs: 100 to test with and as many to learn from."""

ASSUMED: Final = (1.0, 7.5)  # of unit rows, and of ln IC50 about its mean: the paper's supplement
SEARCH_RECORDS, SEARCH_REPEATS = 400, 10
SEARCHES: Final = 14
"""As in Figure 2: the splits take them in turn, and every split is scored with each of them."""

DEFAULT_SPLITS: Final = 3
"""Splits that our default estimator, which is slow, is fitted on."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is run: splits, draws of noise for each of them, prices, drugs (None: all)."""

    splits: int = 25
    draws: int = 1
    epsilons: tuple[float, ...] = FIGURE3_EPSILONS
    drugs: int | None = None
    searches: int = SEARCHES
    default_splits: int = DEFAULT_SPLITS


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One drug: its rows as they are in the file, response last."""

    rows: Floats
    place: int
    thresholds: dict[float, list[tuple[float, float]]]
    size: Size


@dataclass(frozen=True, kw_only=True)
class Found:
    """Scores, shape (splits, draws, drugs), the thresholds, and which drugs were left out.

    `one_direction`: the correlation of one fixed direction, the mean of the exact coefficients of
    all drugs, with every drug's response.
    """

    scores: Scores
    thresholds: dict[float, list[tuple[float, float]]]
    drugs: tuple[str, ...]
    left_out: tuple[str, ...]
    one_direction: float


def run(data: Gdsc, *, size: Size, processes: int) -> Found:
    """Return what was found over all drugs that have enough cell lines."""
    counts = np.count_nonzero(~np.isnan(data.responses), axis=0)
    enough = [drug for drug, count in zip(data.drugs, counts, strict=True) if count >= FEWEST]
    chosen = tuple(enough[: size.drugs])
    wanted = [(epsilon, seed) for epsilon in size.epsilons for seed in range(size.searches)]
    work = partial(_searched, len(data.genes))
    pairs = run_all(work, wanted, "published thresholds: GDSC", processes=processes)
    thresholds: dict[float, list[tuple[float, float]]] = {}
    for (epsilon, _), pair in zip(wanted, pairs, strict=True):
        thresholds.setdefault(epsilon, []).append(pair)
    units = [
        Unit(rows=data.rows(drug), place=place, thresholds=thresholds, size=size)
        for place, drug in enumerate(chosen)
    ]
    each = run_all(score, units, f"Figure 3: {len(units)} drugs", processes=processes)
    return Found(
        scores=best_and_worst_search(stacked(each, axis=2), lower_is_better=False),
        thresholds=thresholds,
        drugs=chosen,
        left_out=tuple(drug for drug in data.drugs if drug not in enough),
        one_direction=_one_direction([unit.rows for unit in units], size.splits),
    )


def score(unit: Unit) -> Scores:
    """Return every method's correlations on one drug, shape (splits, draws) for each price."""
    scores: Scores = {}
    for number in range(unit.size.splits):
        split = gdsc_split(unit.rows, number)
        task = ours.gdsc_task(split.train.shape[1] - 1)
        noiseless = np.array([_correlation(ours.fit_without_noise(task, split.train), split)])
        for place, epsilon in enumerate(unit.thresholds):
            part = {**_score_split(unit, split, number, place), "noiseless": noiseless}
            for method, values in part.items():
                by_epsilon = scores.setdefault(method, {})
                earlier = by_epsilon.get(epsilon, np.empty((0, len(values))))
                by_epsilon[epsilon] = np.vstack([earlier, values])
    return scores


def _score_split(unit: Unit, split: Split, number: int, place: int) -> dict[str, Floats]:
    """Return each method's correlations on one split at one price, shape (draws,).

    The default estimator has one, or none; those of the searches follow each other.
    """
    epsilon, pairs = list(unit.thresholds.items())[place]
    unit_rows = normalised(split)
    # The authors' methods without projection take their bound of the response from the data.
    unclipped = (ASSUMED[0], float(np.ceil(np.abs(unit_rows.train[:, -1]).max())))
    setting = Setting(
        epsilon=epsilon,
        delta=DELTA,
        assumed=ASSUMED,
        unclipped=unclipped,
        first_round_of_ta=unclipped,
        thresholds=pairs[number % len(pairs)],
        capped=False,
    )
    generator = np.random.default_rng([SEED, unit.place, number, place])
    draws = [_draw(split, unit_rows, setting, generator) for _ in range(unit.size.draws)]
    scores = {name: np.array([draw[name] for draw in draws]) for name in draws[0]}
    generator = np.random.default_rng([SEED, unit.place, number, place, 1])
    genes, response = unit_rows.test[:, :-1], split.test[:, -1]
    searched = [
        fit(unit_rows.train, replace(setting, thresholds=pair), generator)["proj_ddp"]
        for pair in pairs
    ]
    scores["proj_ddp_searches"] = np.array(
        [rank_correlation(genes @ each, response) for each in searched]
    )
    if number < unit.size.default_splits:
        default = ours.gdsc_task(genes.shape[1], "intervals")
        one = ours.fit(default, split.train, epsilon=epsilon, delta=DELTA, generator=generator)
        scores["default"] = np.array([_correlation(one, split)])
    return scores


def _correlation(outcome: ours.Fit, split: Split) -> float:
    predicted, _ = outcome.posterior.predict(split.test[:, :-1])
    return rank_correlation(predicted, split.test[:, -1])


def _draw(
    split: Split, unit_rows: Split, setting: Setting, generator: np.random.Generator
) -> dict[str, float]:
    price = {"epsilon": setting.epsilon, "delta": setting.delta}
    genes, response = unit_rows.test[:, :-1], split.test[:, -1]
    coefficients = fit(unit_rows.train, setting, generator)
    found = {name: rank_correlation(genes @ coefficients[name], response) for name in METHODS}
    task = ours.gdsc_task(genes.shape[1])
    found["ours"] = _correlation(ours.fit(task, split.train, **price, generator=generator), split)
    other = rival.fit(unit_rows.train, bounds=ASSUMED, epsilon=setting.epsilon, generator=generator)
    found["diffprivlib"] = rank_correlation(genes @ other, response)
    for method, name in ALGORITHM_2.items():
        projection = ours.algorithm2_task(genes.shape[1], ASSUMED, method)
        cut = ours.fit(projection, unit_rows.train, **price, generator=generator)
        found[name] = _correlation(cut, unit_rows)
    return found


def _one_direction(drugs: list[Floats], count: int) -> float:
    found = []
    for number in range(count):
        parts = [normalised(gdsc_split(rows, number)) for rows in drugs]
        fits = []
        for part in parts:
            x, y = part.train[:, :-1], part.train[:, -1]
            fits.append(np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ y))
        mean = np.mean(fits, axis=0)
        found += [rank_correlation(part.test[:, :-1] @ mean, part.test[:, -1]) for part in parts]
    return float(np.mean(found))


def _searched(features: int, wanted: tuple[float, int]) -> tuple[float, float]:
    """Search as published, for 400 records whatever the drug has: one search serves all drugs."""
    epsilon, seed = wanted
    return published_thresholds(
        records=SEARCH_RECORDS,
        features=features,
        epsilon=(1.0 - FIRST_ROUND) * epsilon,
        delta=(1.0 - FIRST_ROUND) * DELTA,
        score="rank_correlation",
        repeats=SEARCH_REPEATS,
        seed=seed,
    )
