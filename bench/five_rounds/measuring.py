"""Fits samples of real columns in at most five rounds of everybody, by simulation.

Samples of a set are fitted at delta = 1e-5 with 20 lost and 20 colluding clients. Held is the share
of 90 % intervals of slopes that hold the exact fit to the whole set; where trusted, of fits whose
verdict is "trustworthy". The level is the predictor at the features' means. Of lines the absolute
error is over AdaSSP's; of other models the way is the part of it, from the null model's log
likelihood to the exact fit's, that was gone.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.five_rounds import sets
from figures.ada_ssp import ada_ssp
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.scores import Family, mean_of
from shoal_studies.catalogue.regression import (
    MeasuredCoefficients,
    MeasuredRegressionPosterior,
    RegressionTask,
)
from shoal_studies.regression import Regression
from shoal_studies.regression.score_likelihood import slope_of
from shoal_studies.simulation import Federation, run

Floats = NDArray[np.float64]

DELTA: Final = 1e-5
LOST = COLLUDING = 20
LEVEL: Final = 0.9
FEWEST: Final = 10
"""Fits of which it is told how often a single slope held."""
PRICES: Final = (1.0, 3.0, 10.0)
BOUNDS: Final = ((1.1, 0.0), (2.0, 0.0), (4.0, 0.0), (3.0, 1.0))


def fit(
    each: sets.DataSet,
    sample: Floats,
    bounds: Floats,
    generator: np.random.Generator,
    *,
    epsilon: float,
    **chosen: Any,
) -> MeasuredRegressionPosterior:
    """Return what a job over these records, shape (n, m), would end with; `bounds` (m, 2)."""
    columns = [
        ColumnBounds(name=f"x{place}", lower=low, upper=high)
        for place, (low, high) in enumerate(bounds.tolist())
    ]
    *predictors, target = columns
    if each.has_offset:
        chosen["offset"] = predictors.pop()
    task = RegressionTask(family=each.family, features=tuple(predictors), target=target, **chosen)
    setting = federation_of(sample, epsilon=epsilon)
    found = run(Regression(task), sample, setting, generator).posterior
    if not isinstance(found, MeasuredRegressionPosterior):
        raise TypeError("a regression ends with another posterior")
    return found


def federation_of(sample: Floats, *, epsilon: float) -> Federation:
    """Return the federation that holds the records, shape (n, m), at the benchmark's terms."""
    return Federation(
        population=len(sample),
        missing=0,
        dropouts=LOST,
        colluders=COLLUDING,
        epsilon=epsilon,
        delta=DELTA,
    )


def samples(
    each: sets.DataSet, count: int, repeats: int
) -> Iterator[tuple[Floats, np.random.Generator]]:
    """Yield so many samples of `count` records, each with the generator of its noise."""
    for seed in range(repeats):
        generator = np.random.default_rng([seed, count])
        yield each.values[generator.permutation(len(each.values))[:count]], generator


def exact(each: sets.DataSet) -> Floats:
    """Return the coefficients of the exact fit to all records, the intercept first.

    By Newton's method on standardised columns; of scattered counts the Poisson fit, which has the
    same mean.
    """
    x, y, offsets = each.features, each.values[:, -1], each.offsets
    means, spreads = x.mean(axis=0), x.std(axis=0)
    rows = np.column_stack([np.ones(len(x)), (x - means) / spreads])
    if each.family == "normal":
        point = np.linalg.lstsq(rows, y, rcond=None)[0]
    else:
        family = _likelihood_of(each)
        point = np.append(null_level(each), np.zeros(rows.shape[1] - 1))
        for _ in range(50):
            expected = mean_of(family, rows @ point + offsets)
            inverse = 1.0 / expected if family == "gamma" else np.ones(len(y))
            weighted = rows * (inverse * slope_of(family, expected))[:, None]
            step = np.linalg.solve(weighted.T @ rows, rows.T @ (inverse * (y - expected)))
            point = point + step
    slopes = point[1:] / spreads
    return np.append(point[0] - slopes @ means, slopes)


def _likelihood_of(each: sets.DataSet) -> Family:
    return each.family if each.family in ("logistic", "gamma") else "poisson"


def null_level(each: sets.DataSet) -> float:
    """Return the constant of the fit without features."""
    y, exposures = each.values[:, -1], np.exp(each.offsets)
    match _likelihood_of(each):
        case "logistic":
            return math.log(y.mean() / (1.0 - y.mean()))
        case "gamma":
            return math.log((y / exposures).mean())
        case _:
            return math.log(y.mean() / exposures.mean())


def log_likelihood(each: sets.DataSet, coefficients: Floats) -> float:
    """Return the mean log likelihood of all records, but for constants.

    Counts' is Poisson's, and positive numbers' in units of their dispersion.
    """
    predictors = coefficients[0] + each.features @ coefficients[1:] + each.offsets
    y = each.values[:, -1]
    if each.family == "logistic":
        return float(np.mean(y * predictors - np.logaddexp(0.0, predictors)))
    if each.family == "gamma":
        return float(np.mean(-predictors - y * np.exp(-predictors)))
    return float(np.mean(y * predictors - mean_of("poisson", predictors)))


def of_lines(each: sets.DataSet, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of a set with a number as target."""
    truth, whole = exact(each), len(each.values)
    for count, epsilon, (wide, off) in settings_of_lines(whole):
        bounds = each.bounds(wide=wide, off=off)
        fits, errors, rivals = Fits(truth, each.middle), [], []
        for sample, generator in samples(each, count, repeats):
            found = fit(each, sample, bounds, generator, epsilon=epsilon)
            fits.add(found)
            errors.append(_error(each, found.mean))
            rival = ada_ssp(
                sample, bounds, generator, epsilon=epsilon, delta=DELTA, absent=LOST + COLLUDING + 1
            )
            rivals.append(_error(each, rival))
        yield {
            "set": each.name,
            "family": each.family,
            "records": count,
            "epsilon": epsilon,
            "bounds": f"{wide:g} times the range, off by {off:g}",
            "error over AdaSSP's": float(np.median(errors) / np.median(rivals)),
            **fits.figures(),
        }


def settings_of_lines(whole: int) -> list[tuple[int, float, tuple[float, float]]]:
    """Return sizes of samples, prices and bounds for a set of `whole` records."""
    good = [
        (min(count, whole), epsilon, BOUNDS[0]) for count in (500, 2000) for epsilon in PRICES[:2]
    ]
    return [*dict.fromkeys(good), *((min(5000, whole), PRICES[0], each) for each in BOUNDS[1:])]


def of_models(each: sets.DataSet, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of a set with a class, a count or a positive number as target."""
    truth, whole, bounds = exact(each), len(each.values), each.bounds()
    null = np.zeros_like(truth)
    null[0] = null_level(each)
    worst, best = log_likelihood(each, null), log_likelihood(each, truth)
    for epsilon in PRICES:
        count, fits, ways = min(2000, whole), Fits(truth, each.middle), []
        for sample, generator in samples(each, count, repeats):
            found = fit(each, sample, bounds, generator, epsilon=epsilon)
            fits.add(found)
            ways.append((log_likelihood(each, found.mean) - worst) / (best - worst))
        yield {
            "set": each.name,
            "family": each.family,
            "records": count,
            "epsilon": epsilon,
            **fits.ways(ways),
            **fits.figures(),
        }


def _error(each: sets.DataSet, coefficients: Floats) -> float:
    predicted = coefficients[0] + each.values[:, :-1] @ coefficients[1:]
    return float(np.abs(predicted - each.values[:, -1]).mean())


class Fits:
    """How often intervals of slopes, and of the level, held the truth, by verdict."""

    def __init__(self, truth: Floats, middle: Floats) -> None:
        """`middle`, shape (p,), is the mean row, of constant and features."""
        self._truth, self._middle = truth, middle
        self._levels: list[float] = []
        self._held: list[NDArray[np.bool_]] = []
        self._verdicts: list[str] = []

    def add(self, found: MeasuredCoefficients) -> None:
        """Count one fit."""
        low, high = found.interval(LEVEL).T
        self._held.append(((low <= self._truth) & (self._truth <= high))[1:])
        off = (found.mean - self._truth) @ self._middle
        sd = math.sqrt(self._middle @ found.covariance_matrix @ self._middle)
        self._levels.append(float(abs(off) <= NormalDist().inv_cdf(0.5 + LEVEL / 2.0) * sd))
        self._verdicts.append(found.verdict.kind)

    @property
    def trusted(self) -> NDArray[np.bool_]:
        """Whether each fit's verdict is "trustworthy"."""
        return np.array([kind == "trustworthy" for kind in self._verdicts])

    def ways(self, ways: list[float]) -> dict[str, float]:
        """Return the median of how far fits came from the null model, and how many went back."""
        worse = np.array(ways) < 0.0
        return {
            "way": float(np.median(ways)),
            "worse than null": float(np.mean(worse)),
            "worse than null and trusted": float(np.mean(worse & self.trusted)),
        }

    def figures(self) -> dict[str, float]:
        """Return shares: of intervals that held, in all and where trusted, and of verdicts."""
        held, kinds = np.array(self._held), np.array(self._verdicts)
        trusted = held[self.trusted]
        return {
            "held": float(held.mean()),
            "held, worst slope": float(held.mean(axis=0).min()),
            "held, level": float(np.mean(self._levels)),
            "held where trusted": float(trusted.mean()) if len(trusted) else math.nan,
            "worst slope where trusted": _worst(trusted),
            **{
                kind: float(np.mean(kinds == kind)) for kind in ("trustworthy", "prior", "doubtful")
            },
        }


def _worst(held: NDArray[np.bool_]) -> float:
    """Return how often the slope held that did so least, NaN of too few fits to tell."""
    return float(held.mean(axis=0).min()) if len(held) >= FEWEST else math.nan


def measured(data: Path | None, repeats: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the figures of every set and setting, each with the name of its part."""
    for each in sets.linear(data):
        yield from (("linear", row) for row in of_lines(each, repeats))
    for each in sets.generalised(data):
        yield from (("generalised", row) for row in of_models(each, repeats))


def settings(data: Path | None) -> int:
    """Return of how many sets and settings `measured` yields the figures."""
    lines = sum(len(settings_of_lines(len(each.values))) for each in sets.linear(data))
    return lines + len(PRICES) * len(list(sets.generalised(data)))


def shown(row: dict[str, Any]) -> str:
    """Return the figures of one setting on a line."""
    return ", ".join(f"{name} {_shown(value)}" for name, value in row.items())


def _shown(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
