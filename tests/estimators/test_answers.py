"""Contrasts, differences, tests and likelihoods of regressions, and moments by an estimator."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from shoal.answers import Answers, chi_square_tail, contrast, difference, wald
from shoal.estimators import (
    Moments,
    NotFittedError,
)
from shoal_studies.catalogue.regression import MeasuredRegressionPosterior, Verdict
from shoal_studies.simulation import SimulatedFederation

CLIENTS = 800
FEATURES = {"age": (18, 90), "dose": (0, 10)}
COLUMNS = {**FEATURES, "pressure": (60, 220)}


def table(seed: int = 1) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    age, dose = generator.uniform(18, 90, CLIENTS), generator.uniform(0, 10, CLIENTS)
    chance = 1 / (1 + np.exp(-(dose - 5) / 2))
    return {
        "age": age,
        "dose": dose,
        "pressure": 90 + 0.5 * age + 2 * dose + generator.normal(0, 6, CLIENTS),
        "recovered": (generator.uniform(size=CLIENTS) < chance).astype(float),
        "visits": generator.poisson(np.exp(0.2 * dose - 0.5)).astype(float),
    }


def federation(seed: int = 1) -> SimulatedFederation:
    return SimulatedFederation(
        table(), epsilon=50.0, delta=1e-5, dropouts=5, colluders=5, seed=seed
    )


def posterior() -> MeasuredRegressionPosterior:
    covariance = np.array([[1.0, 0.1, 0.0], [0.1, 0.5, 0.2], [0.0, 0.2, 0.4]])
    return MeasuredRegressionPosterior(
        family="normal",
        names=("intercept", "age", "dose"),
        target="pressure",
        coefficients=(90.0, 1.5, -2.0),
        covariance=tuple(map(tuple, covariance.tolist())),
        prior_mean=(0.0, 0.0, 0.0),
        prior_sd=(10.0, 10.0, 10.0),
        scatter=3.0,
        spreads=(1.0, 1.0),
        records=100,
        verdict=Verdict(kind="trustworthy"),
    )


def test_a_contrast_is_a_weighted_sum_with_its_own_interval() -> None:
    found = contrast(posterior(), {"age": 1.0, "dose": -2.0}, {"intercept": 1.0})
    assert found.mean.tolist() == [5.5, 90.0]
    assert found.sd == pytest.approx([math.sqrt(0.5 + 4 * 0.4 - 4 * 0.2), 1.0])
    half = stats.norm.ppf(0.95) * found.sd
    assert found.interval(0.9) == pytest.approx(
        np.column_stack([found.mean - half, found.mean + half])
    )
    assert "+1 age -2 dose" in str(found) and "<table>" in found._repr_html_()


def test_a_difference_is_as_unsure_as_both_together() -> None:
    other = posterior().model_copy(update={"names": ("intercept", "dose", "age")})
    found = difference(posterior(), other)
    assert found.names == ("intercept", "age", "dose")
    assert found.mean.tolist() == [0.0, 3.5, -3.5]
    assert found.sd == pytest.approx([math.sqrt(2.0), math.sqrt(0.9), math.sqrt(0.9)])


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 30, 251])
def test_the_tail_of_a_chi_square_is_scipys(degrees: int) -> None:
    for statistic in (0.0, 1e-6, 0.5, 3.0, 40.0, 300.0, 2000.0):
        assert chi_square_tail(statistic, degrees) == pytest.approx(
            stats.chi2.sf(statistic, degrees), rel=1e-9, abs=1e-300
        )


def test_a_wald_test_is_of_all_hypotheses_together() -> None:
    mean, block = np.array([1.5, -2.0]), np.array([[0.5, 0.2], [0.2, 0.4]])
    found = wald(posterior(), ["age", "dose"])
    assert found.statistic == pytest.approx(mean @ np.linalg.solve(block, mean))
    assert found.degrees == 2
    assert found.p_value == pytest.approx(stats.chi2.sf(found.statistic, 2))
    alike = wald(posterior(), [{"age": 1.0, "dose": 1.0}], [-0.5])
    assert (alike.statistic, alike.p_value) == (0.0, 1.0)
    assert "p = 1" in str(alike)


@pytest.mark.parametrize(
    ("hypotheses", "values", "said"),
    [
        (["height"], None, "no coefficient 'height'"),
        ([], None, "one coefficient"),
        ([{}], None, "one coefficient"),
        (["age"], [0.0, 1.0], "one value"),
        (["age", {"age": 2.0}], None, "follows from the others"),
    ],
)
def test_a_hypothesis_that_is_none_is_refused(hypotheses: Any, values: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        wald(posterior(), hypotheses, values)


@pytest.mark.parametrize("as_frame", [dict, pd.DataFrame])
def test_a_posterior_reads_arrays_and_refuses_columns_by_name(as_frame: Any) -> None:
    found, rows = posterior(), [[40.0, 1.0]]
    assert found.predict(rows)[0] == pytest.approx(found.mean @ [1.0, *rows[0]])
    with pytest.raises(ValueError, match="only an estimator reads columns by name"):
        found.predict(as_frame({name: [1.0] for name in found.features}))
    with pytest.raises(ValueError, match="must be a number"):
        found.predict([["old", "much"]])


def test_an_estimator_of_moments_answers_after_one_fit() -> None:
    model = Moments(columns=COLUMNS)
    with pytest.raises(NotFittedError):
        model.answers_  # noqa: B018
    model.fit(federation())
    assert model.feature_names_in_.tolist() == ["age", "dose", "pressure"]
    assert "correlation[age, pressure]" in str(model.summary()) and model.plot().has_data()
    answers = model.answers_
    whole, part = answers.linear_model("pressure"), answers.linear_model("dose", ["pressure"])
    np.testing.assert_allclose(whole.mean, [90, 0.5, 2], rtol=0.15)
    assert part.names == ("intercept", "pressure")
    ten_years = contrast(whole, {"age": 10.0})
    assert ten_years.mean == pytest.approx([5.0], abs=1.0)
    assert wald(whole, ["age", "dose"]).p_value < 1e-6
    assert isinstance(answers, Answers)
    compared = answers.compare("pressure", [["age"], ["age", "dose"]])
    assert compared.probabilities[1] > compared.probabilities[0]
