"""Regressions of records whose means are not as the model has them: the fit is that of all records.

Without noise a regression is the exact fit, however wrong the model. Where noise is too strong for
that, verdicts say that records far out have other slopes.
"""

from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

from shoal import SimulatedFederation
from shoal.estimators import (
    GammaRegression,
    LinearRegression,
    LogisticRegression,
    NegativeBinomialRegression,
    PoissonRegression,
)
from shoal_studies.catalogue.regression import misplaced

KINDS: dict[str, tuple[Any, tuple[float, float], Any]] = {
    "normal": (LinearRegression, (-8.0, 8.0), sm.families.Gaussian()),
    "logistic": (LogisticRegression, (0.0, 1.0), sm.families.Binomial()),
    "poisson": (PoissonRegression, (0.0, 60.0), sm.families.Poisson()),
}


def bent(family: str, *, far: float = 12.0, count: int = 9000) -> dict[str, np.ndarray]:
    """Return records with far tails in x, whose effect ends at 1: no slope fits all of them."""
    generator = np.random.default_rng(8)
    x = generator.standard_t(3.0, count).clip(-far, far)
    z, away = generator.normal(size=count).clip(-4.0, 4.0), generator.normal(size=count)
    predictor = 0.8 * np.minimum(x, 1.0).clip(-3.0) + 0.3 * z
    match family:
        case "normal":
            y = (predictor + away).clip(-8.0, 8.0)
        case "logistic":
            y = (predictor + generator.logistic(size=count) > 0.0).astype(np.float64)
        case _:
            y = generator.poisson(np.exp(predictor)).clip(max=60).astype(np.float64)
    return {"x": x, "z": z, "y": y}


def learned(family: str, columns: dict[str, np.ndarray], *, epsilon: float, seed: int) -> Any:
    kind, bounds, _ = KINDS[family]
    federation = SimulatedFederation(
        columns, epsilon=epsilon, delta=1e-5, dropouts=20, colluders=20, seed=seed
    )
    return kind(features={"x": (-12, 12), "z": (-4, 4)}, target={"y": bounds}).fit(federation)


def exact_slopes(family: str, columns: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the slopes of the exact fit, and their standard errors however records scatter."""
    design = sm.add_constant(np.column_stack([columns["x"], columns["z"]]))
    exact = sm.GLM(columns["y"], design, family=KINDS[family][2]).fit(cov_type="HC0")
    return exact.params[1:], exact.bse[1:]


@pytest.mark.parametrize(
    ("family", "far"), [("normal", 12.0), ("logistic", 12.0), ("poisson", 3.0)]
)
def test_with_hardly_any_noise_it_is_the_exact_fit_of_all_records(family: str, far: float) -> None:
    columns = bent(family, far=far)
    slopes, errors = exact_slopes(family, columns)
    model = learned(family, columns, epsilon=60.0, seed=0)
    assert np.all(np.abs(model.coef_ - slopes) < 0.5 * errors)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", KINDS)
def test_trusted_intervals_hold_the_exact_fit(family: str, seed: int) -> None:
    """Of slopes that only records nearer to the middle have, hardly one does."""
    columns = bent(family)
    slopes, _ = exact_slopes(family, columns)
    model = learned(family, columns, epsilon=4.0, seed=seed)
    low, high = model.posterior_.interval(0.95)[1:].T
    assert model.posterior_.verdict.kind == "doubtful" or np.all((low < slopes) & (slopes < high))


def test_counts_whose_mean_a_fit_misses_are_doubted() -> None:
    """Few stay at all, and some of them for long, as no negative binomial numbers do."""
    generator = np.random.default_rng(5)
    x = generator.uniform(-1.0, 1.0, 15_000)
    days = np.exp(generator.normal(0.3, 1.3, len(x))).clip(max=50.0)
    y = np.where(generator.binomial(1, 0.12 * np.exp(0.15 * x)), np.ceil(days), 0.0)
    federation = SimulatedFederation(
        {"x": x, "y": y}, epsilon=6.0, delta=1e-5, dropouts=20, colluders=20, seed=0
    )
    model = NegativeBinomialRegression(features={"x": (-1, 1)}, target={"y": (0, 50)})
    assert "predictions are off in the mean" in model.fit(federation).verdict_


def test_a_dispersion_is_told_as_well_as_records_tell_it() -> None:
    generator = np.random.default_rng(1)
    x = generator.uniform(-1.0, 1.0, 5000)
    y = generator.gamma(1.0 / 0.3, 0.3 * 5.0 * np.exp(0.4 * x))
    federation = SimulatedFederation(
        {"x": x, "y": y}, epsilon=10.0, delta=1e-5, dropouts=20, colluders=20, seed=0
    )
    model = GammaRegression(features={"x": (-1, 1)}, target={"y": (0, 40)}).fit(federation)
    assert model.posterior_.scatter == pytest.approx(0.3, abs=0.03)


def test_what_is_counted_from_one_may_be_one_for_most() -> None:
    def said(lower: float) -> str | None:
        return misplaced(
            "x", (lower, lower + 7), centre=lower + 0.6, spread=0.9, looseness=1.0, is_binary=False
        )

    assert said(1.0) is None
    assert "a large share of the values" in (said(20.0) or "")
