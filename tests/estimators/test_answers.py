"""What a regression's posterior reads, and the answers of moments by an estimator."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from shoal.answers import Answers
from shoal.estimators import (
    Moments,
    NotFittedError,
)
from shoal_studies.catalogue.regression import MeasuredRegressionPosterior, Verdict
from tests.estimators.test_estimators import FEATURES, federation

COLUMNS = {**FEATURES, "pressure": (60, 220)}


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
    assert isinstance(answers, Answers)
    compared = answers.compare("pressure", [["age"], ["age", "dose"]])
    assert compared.probabilities[1] > compared.probabilities[0]
