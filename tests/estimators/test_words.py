"""Ratios, scales of forest plots, ArviZ after simulations, and that messages say what is wrong."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

from shoal import JobSettings, SimulatedFederation
from shoal.answers import contrast, difference, wald
from shoal.estimators import (
    CohortCard,
    LinearRegression,
    LogisticRegression,
    MultinomialRegression,
    PiecewiseExponentialRegression,
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
    return LogisticRegression(formula="ill ~ age").fit(federation())


def test_ratios_are_exponentials_with_the_intervals_of_the_slopes(ill: LogisticRegression) -> None:
    found = ill.posterior_.ratios(0.9)
    logs = [ill.coef_[0], *ill.posterior_.interval(0.9)[1]]
    assert np.log(found) == pytest.approx(np.array([logs]))
    table = ill.ratios(0.9)
    assert table.headings == ("", "odds ratio", "quantile 0.05", "quantile 0.95")
    assert table.rows[0] == ("age", *(f"{each:.4g}" for each in np.exp(logs)))
    assert table.facts == (("Verdict", ill.verdict_),)


def test_each_family_calls_its_ratios_by_their_name_and_a_line_has_none() -> None:
    there = federation()
    counts = PoissonRegression(formula="visits ~ age").fit(there)
    assert counts.ratios().headings[1] == "rate ratio"
    hazards = PiecewiseExponentialRegression(formula="survival(weeks, died) ~ age").fit(there)
    assert hazards.ratios().headings[1] == "hazard ratio"
    assert len(hazards.ratios().rows) == 1  # and none of the baseline
    assert np.array_equal(hazards.posterior_.ratios(), hazards.posterior_.hazard_ratios())
    classes = MultinomialRegression(formula="ill ~ age").fit(there)
    assert [row[0] for row in classes.ratios().rows] == ["yes: age"]
    line = LinearRegression(formula="weeks ~ age").fit(there)
    for refused in (line.ratios, lambda: line.plot(scale="ratio")):
        with pytest.raises(ValueError, match="a linear regression has no ratios"):
            refused()


def drawn(axes: Any) -> float:
    return float(axes.lines[-1].get_xdata()[0])


def test_a_forest_plot_has_the_scale_that_is_asked(ill: LogisticRegression) -> None:
    [slope], spread = ill.coef_, ill.posterior_.spreads[0]
    assert drawn(ill.plot()) == drawn(ill.plot(scale="sd")) == pytest.approx(slope * spread)
    assert drawn(ill.plot(scale="unit")) == pytest.approx(slope)
    axes = ill.plot(scale="ratio")
    assert drawn(axes) == pytest.approx(np.exp(slope)) and axes.get_xscale() == "log"
    assert axes.get_xlabel().endswith("ratios for one unit")
    with pytest.raises(ValueError, match="scale is one of sd, unit, ratio"):
        ill.plot(scale="odds")  # type: ignore[arg-type]
    pyplot.close("all")


def test_contrasts_take_a_fitted_regression(ill: LogisticRegression) -> None:
    posterior = ill.posterior_
    for of in (ill, posterior):
        assert contrast(of, {"age": 10.0}).mean == pytest.approx(10.0 * ill.coef_)
        assert wald(of, ["age"]).p_value == wald(posterior, ["age"]).p_value
        assert difference(of, ill).mean == pytest.approx([0.0, 0.0])
    with pytest.raises(ValueError, match=r"no coefficient 'agee': .* near to it are age"):
        contrast(ill, {"agee": 1.0})
    with pytest.raises(ValueError, match="of a fitted regression"):
        contrast(CohortCard(variables=["age"]), {"age": 1.0})  # type: ignore[arg-type]


def test_a_simulation_exports_to_arviz_as_a_job_does(ill: LogisticRegression) -> None:
    data = ill.to_arviz(np.random.default_rng(1), count=50, rows=frame()[:20])
    assert data.posterior["coefficients"].shape == (1, 50, 2)
    assert data.posterior.attrs["simulated"] == 1 and data.posterior.attrs["epsilon"] == 20.0
    likelihood = data.log_likelihood["ill[yes]"]
    assert likelihood.shape == (1, 50, 20)
    given = ill.to_arviz(
        np.random.default_rng(1), count=50, rows=frame()[["age"]][:20], targets=frame()["ill"][:20]
    )
    assert np.array_equal(given.log_likelihood["ill[yes]"], likelihood)
    card = CohortCard(variables={"age": (18, 90)}).fit(federation())
    assert "numbers" in card.to_arviz(np.random.default_rng(1), count=5).posterior
    with pytest.raises(ValueError, match="for regressions"):
        card.to_arviz(np.random.default_rng(1), rows=frame())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"age": [50.0, np.nan]}, "a value is missing, or infinite, in 'age'"),
        ({"age": ["old", "young"]}, "column 'age' holds texts: make them numbers, as"),
        ({"agee": [50.0, 60.0]}, "no column 'age'; near to it are agee"),
    ],
)
def test_rows_that_cannot_be_used_are_told_by_column(
    ill: LogisticRegression, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        ill.score({"ill": ["no", "yes"], **change})


@pytest.mark.parametrize("formula", ["Surv(weeks, died) ~ age", "age", "weeks ~ age", "~ age"])
def test_a_formula_of_hazards_is_told_its_form(formula: str) -> None:
    with pytest.raises(ValueError, match=r'as "survival\(weeks, arrested\) ~ age"'):
        PiecewiseExponentialRegression(formula=formula).fit(federation())


def test_a_job_that_cannot_be_is_told_in_plain_words() -> None:
    settings: dict[str, Any] = {
        **{"epsilon": 500.0, "delta": 1e-5, "dropouts": 1, "colluders": 1},
        **{"minimum_population": 5, "maximum_population": 9},
        **{"join_seconds": 1, "round_seconds": 1, "grace_seconds": 1},
    }
    with pytest.raises(ValueError, match="epsilon: should be less than or equal to 100") as told:
        _ = JobSettings(**settings).privacy
    assert "pydantic" not in str(told.value)
