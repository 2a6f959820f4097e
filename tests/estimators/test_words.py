"""Ratios, scales of forest plots, ArviZ after simulations, and that messages say what is wrong."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from shoal import SimulatedFederation
from shoal.estimators import (
    GammaRegression,
    LinearRegression,
    LogisticRegression,
    PoissonRegression,
)

CLIENTS = 3000


def frame() -> pd.DataFrame:
    generator = np.random.default_rng(1)
    age = generator.uniform(20, 80, CLIENTS)
    ill = generator.uniform(size=CLIENTS) < 1 / (1 + np.exp(-0.05 * (age - 50)))
    return pd.DataFrame(
        {
            "age": age,
            "ill": np.where(ill, "yes", "no"),
            "visits": generator.poisson(np.exp(0.02 * (age - 50))),
            "weeks": generator.exponential(20, CLIENTS).clip(0.1, 50),
            "died": generator.uniform(size=CLIENTS) < 0.5,
        }
    )


def federation(**more: Any) -> SimulatedFederation:
    return SimulatedFederation(
        frame(), epsilon=20.0, delta=1e-5, dropouts=2, colluders=2, seed=1, **more
    )


@pytest.fixture(scope="module")
def ill() -> LogisticRegression:
    known = {"age": (20, 80), "ill": ("no", "yes")}
    return LogisticRegression(formula="ill ~ age", variables=known).fit(federation())


def test_ratios_are_exponentials_with_the_intervals_of_the_slopes(ill: LogisticRegression) -> None:
    found = ill.posterior_.ratios(0.9)
    logs = [ill.coef_[0], *ill.posterior_.interval(0.9)[1]]
    assert np.log(found) == pytest.approx(np.array([logs]))
    table = ill.ratios(0.9)
    assert table.headings == ("", "odds ratio", "quantile 0.05", "quantile 0.95")
    assert table.rows[0] == ("age", *(f"{each:.4g}" for each in np.exp(logs)))
    assert table.facts == (("Verdict", ill.verdict_),)


@pytest.mark.slow
def test_the_intervals_of_scatter_hold_it() -> None:
    """An interval that held 90 % would hold fewer than 29 of 40 once in 2,600 runs."""
    held = []
    for seed in range(10):
        generator = np.random.default_rng([30, seed])
        dose = generator.normal(size=2000)
        columns = {
            "dose": dose,
            "ill": (generator.random(2000) < 1.0 / (1.0 + np.exp(-dose))).astype(float),
            "visits": generator.poisson(np.exp(0.5 + 0.4 * dose)).clip(max=40).astype(float),
            "level": 0.4 * dose + generator.normal(0.0, 0.5, 2000),
            "cost": generator.gamma(4.0, np.exp(0.4 * dose) / 4.0).clip(max=30),
        }
        there = SimulatedFederation(
            columns, epsilon=3.0, delta=1e-5, dropouts=20, colluders=20, seed=seed
        )
        for kind, target, scatter in (
            (LinearRegression, {"level": (-4, 4)}, 0.5),
            (LogisticRegression, {"ill": (0, 1)}, 1.0),
            (PoissonRegression, {"visits": (0, 40)}, 1.0),
            (GammaRegression, {"cost": (0, 30)}, 0.25),
        ):
            model = kind(features={"dose": (-4, 4)}, target=target).fit(there)
            low, high = model.posterior_.scatter_interval(0.9)
            held.append(low <= scatter <= high)
    assert sum(held) >= 29
