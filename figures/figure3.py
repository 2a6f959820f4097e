"""Figure 3: rank correlation of predicted drug sensitivity on GDSC, by method and price."""

from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from figures import ours, rival
from figures.authors import DELTA, FIGURE3_EPSILONS
from figures.datasets import GDSC_TEST, Gdsc, Split, gdsc_split, normalised
from figures.published import FIRST_ROUND, METHODS, Setting, fit
from figures.published_search import published_thresholds
from figures.running import run_all
from figures.scores import Scores, rank_correlation, stacked

Floats = NDArray[np.float64]

SEED: Final = 2018
FEWEST: Final = 2 * GDSC_TEST
"""Cell lines that a drug needs: 100 to test with and as many to learn from."""

ASSUMED: Final = (1.0, 7.5)  # of unit rows, and of ln IC50 about its mean: the paper's supplement
SEARCH_RECORDS, SEARCH_REPEATS, SEARCHES = 400, 10, 5


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is run: splits, draws of noise for each of them, prices, drugs (None: all)."""

    splits: int = 25
    draws: int = 1
    epsilons: tuple[float, ...] = FIGURE3_EPSILONS
    drugs: int | None = None


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
    wanted = [(epsilon, seed) for epsilon in size.epsilons for seed in range(SEARCHES)]
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
        scores=stacked(each, axis=2),
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
        unit_rows = normalised(split)
        for place, (epsilon, pairs) in enumerate(unit.thresholds.items()):
            generator = np.random.default_rng([SEED, unit.place, number, place])
            for draw in range(unit.size.draws):
                found = _draw(split, unit_rows, epsilon, pairs[number % SEARCHES], generator)
                for method, value in found.items():
                    shape = (unit.size.splits, unit.size.draws)
                    by_epsilon = scores.setdefault(method, {})
                    by_epsilon.setdefault(epsilon, np.zeros(shape))[number, draw] = value
    return scores


def _draw(
    split: Split,
    unit_rows: Split,
    epsilon: float,
    pair: tuple[float, float],
    generator: np.random.Generator,
) -> dict[str, float]:
    # The authors' methods without projection take their bound of the response from the data.
    unclipped = (ASSUMED[0], float(np.ceil(np.abs(unit_rows.train[:, -1]).max())))
    setting = Setting(
        epsilon=epsilon,
        delta=DELTA,
        assumed=ASSUMED,
        unclipped=unclipped,
        first_round_of_ta=unclipped,
        thresholds=pair,
        capped=False,
    )
    genes, response = unit_rows.test[:, :-1], split.test[:, -1]
    coefficients = fit(unit_rows.train, setting, generator)
    found = {name: rank_correlation(genes @ coefficients[name], response) for name in METHODS}
    outcome = ours.fit(
        ours.gdsc_task(genes.shape[1]),
        split.train,
        epsilon=epsilon,
        delta=DELTA,
        generator=generator,
    )
    predicted, _ = outcome.posterior.predict(split.test[:, :-1])
    found["ours"] = rank_correlation(predicted, response)
    other = rival.fit(unit_rows.train, bounds=ASSUMED, epsilon=epsilon, generator=generator)
    found["diffprivlib"] = rank_correlation(genes @ other, response)
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
