"""Fits multinomial regressions to samples of real columns and of made-up ones, by simulation.

As `bench.five_rounds.measuring`; samples of sets that are smaller are drawn with replacement.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_wine
from statsmodels.datasets import anes96, fair, randhie

from bench.five_rounds import sets
from bench.five_rounds.measuring import PRICES, Fits, federation_of
from shoal_learning.regression.multinomial import MultinomialRegression
from shoal_learning.simulation import run
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.scores import class_probabilities
from shoal_protocol.studies.multinomial_regression import (
    MultinomialRegressionPosterior,
    MultinomialRegressionTask,
    TargetLevel,
)

Floats = NDArray[np.float64]

RECORDS: Final = 2_000
_RIDGE: Final = 1e-6  # of classes that can be told apart, which have no best fit


@dataclass(frozen=True)
class Classes:
    """`values`, shape (N, m), the target's place among `count` levels last."""

    name: str
    values: Floats
    count: int

    @property
    def rows(self) -> Floats:
        """The constant and the features, shape (N, p)."""
        return np.column_stack([np.ones(len(self.values)), self.values[:, :-1]])

    def log_likelihood(self, slopes: Floats) -> float:
        """Return the mean log likelihood of all records at coefficients, shape (K - 1, p)."""
        predictors = np.pad(self.rows @ slopes.T, ((0, 0), (1, 0)))
        places = self.values[:, -1].astype(int)
        logs = np.log(class_probabilities(predictors))
        return float(logs[np.arange(len(places)), places].mean())

    def exact(self) -> Floats:
        """Return the fit to all records, shape (K - 1, p), by Newton's method."""
        x = self.values[:, :-1]
        means, spreads = x.mean(axis=0), x.std(axis=0)
        rows = np.column_stack([np.ones(len(x)), (x - means) / spreads])
        is_of = np.eye(self.count)[self.values[:, -1].astype(int)][:, 1:]
        point = np.zeros((self.count - 1, rows.shape[1]))
        for _ in range(40):
            found = class_probabilities(np.pad(rows @ point.T, ((0, 0), (1, 0))))[:, 1:]
            slope = (is_of - found).T @ rows - _RIDGE * len(x) * point
            each = (found[:, :, None] * rows[:, None, :]).reshape(len(x), -1)
            curvature = -each.T @ each + _RIDGE * len(x) * np.eye(each.shape[1])
            for place in range(self.count - 1):
                block = slice(place * rows.shape[1], (place + 1) * rows.shape[1])
                curvature[block, block] += (rows * found[:, [place]]).T @ rows
            step = np.linalg.solve(curvature, slope.ravel())
            step *= min(1.0, 3.0 / max(float(np.linalg.norm(step)), 1e-12))
            point = point + step.reshape(point.shape)
        slopes = point[:, 1:] / spreads
        return np.column_stack([point[:, 0] - slopes @ means, slopes])

    def task(self) -> MultinomialRegressionTask:
        """Return the task, with bounds 1.1 times the range."""
        bounds = sets.DataSet(self.name, "normal", self.values).bounds()[:-1]
        return MultinomialRegressionTask(
            features=tuple(
                ColumnBounds(name=f"x{place}", lower=low, upper=high)
                for place, (low, high) in enumerate(bounds.tolist())
            ),
            target="y",
            levels=tuple(
                TargetLevel(name=str(place), value=float(place)) for place in range(self.count)
            ),
        )


def data_sets() -> Iterator[Classes]:
    """Yield real sets, and made-up ones: strong effects, a rare class, a misspecified model."""
    party = sets.columns_of(anes96, sets.VOTERS, "PID")
    yield Classes("anes96, party of 7", party, 7)
    party = party.copy()
    party[:, -1] = np.digitize(party[:, -1], [2.5, 3.5])
    yield Classes("anes96, party of 3", party, 3)
    happy = sets.columns_of(fair, sets.COUPLES, "rate_marriage")
    happy[:, -1] = np.maximum(happy[:, -1] - 2.0, 0.0)
    yield Classes("fair, happiness of 4", happy, 4)
    health = sets.columns_of(randhie, ("lncoins", "idp", "lpi", "fmde", "physlm", "disea"), "hlthg")
    worse = sets.columns_of(randhie, ("hlthf",), "hlthp")
    health[:, -1] += 2.0 * worse[:, 0] + 3.0 * worse[:, 1]
    yield Classes("randhie, health of 4", health, 4)
    wine = load_wine()
    kept = wine.data[:, [1, 2, 3, 4, 7]]
    yield Classes("wine", np.column_stack([kept, wine.target]).astype(np.float64), 3)
    generator = np.random.default_rng(13)
    x = generator.standard_normal(20_000)
    z = generator.binomial(1, 0.3, 20_000).astype(np.float64)
    skewed = generator.gamma(2.0, 1.0, 20_000)
    strong = [0.0 * x, 1.0 + 1.8 * x - z, 0.5 - 1.5 * x + 1.5 * z]
    yield _made_up("strong", [x, z], strong, generator)
    rare = [0.0 * x, -0.5 + 0.6 * x, -4.0 + 0.8 * x + 0.8 * z]
    yield _made_up("rare", [x, z], rare, generator)
    wrong = [0.3 * x**2, np.sin(2.0 * x) + 0.5 * z * x, 0.5 * np.log(skewed) - 0.5]
    yield _made_up("misspecified", [x, z, skewed], wrong, generator)


def _made_up(
    name: str, features: list[Floats], predictors: list[Floats], generator: np.random.Generator
) -> Classes:
    shares = class_probabilities(np.column_stack(predictors))
    places = (generator.random(len(shares))[:, None] > np.cumsum(shares, axis=1)).sum(axis=1)
    places = np.minimum(places, shares.shape[1] - 1)
    return Classes(name, np.column_stack([*features, places]).astype(np.float64), len(predictors))


def measured(repeats: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of every set and price."""
    for each in data_sets():
        for epsilon in PRICES:
            yield fitted(each, epsilon=epsilon, repeats=repeats)


def fitted(each: Classes, *, epsilon: float, repeats: int) -> dict[str, Any]:
    """Return the figures of a set at a price."""
    truth, task, whole = each.exact(), each.task(), len(each.values)
    null = np.zeros_like(truth)
    counts = np.bincount(each.values[:, -1].astype(int), minlength=each.count)
    null[:, 0] = np.log(counts[1:] / counts[0])
    worst, best = each.log_likelihood(null), each.log_likelihood(truth)
    fits, ways = Fits(truth.ravel(), each.rows.mean(axis=0)), []
    for seed in range(repeats):
        generator = np.random.default_rng([seed, RECORDS])
        drawn = generator.choice(whole, RECORDS, replace=whole < RECORDS)
        sample = each.values[drawn]
        setting = federation_of(sample, epsilon=epsilon)
        found = run(MultinomialRegression(task), sample, setting, generator).posterior
        if not isinstance(found, MultinomialRegressionPosterior):
            raise TypeError("a regression ends with another posterior")
        fits.add(found)
        likely = each.log_likelihood(found.mean.reshape(truth.shape))
        ways.append((likely - worst) / (best - worst))
    return {
        "set": each.name,
        "family": "multinomial",
        "records": RECORDS,
        "epsilon": epsilon,
        **fits.ways(ways),
        **fits.figures(),
    }
