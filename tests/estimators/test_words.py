"""Ratios, scales of forest plots, ArviZ after simulations, and that messages say what is wrong."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from shoal import SimulatedFederation
from shoal.estimators import (
    LogisticRegression,
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
    return LogisticRegression(formula="ill ~ age").fit(federation())


def test_ratios_are_exponentials_with_the_intervals_of_the_slopes(ill: LogisticRegression) -> None:
    found = ill.posterior_.ratios(0.9)
    logs = [ill.coef_[0], *ill.posterior_.interval(0.9)[1]]
    assert np.log(found) == pytest.approx(np.array([logs]))
    table = ill.ratios(0.9)
    assert table.headings == ("", "odds ratio", "quantile 0.05", "quantile 0.95")
    assert table.rows[0] == ("age", *(f"{each:.4g}" for each in np.exp(logs)))
    assert table.facts == (("Verdict", ill.verdict_),)
