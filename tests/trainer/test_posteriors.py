"""What an analyst reads off a posterior."""

import numpy as np
import pytest
from pydantic import ValidationError

from shoal_protocol.studies.linear_regression import LinearRegressionPosterior

POSTERIOR = LinearRegressionPosterior(
    names=("intercept", "dose"),
    target="response",
    coefficients=(1.0, 2.0),
    covariance=((0.04, -0.01), (-0.01, 0.09)),
    residual_sd=0.5,
    records=100,
)


def test_intervals_are_central_and_hold_their_share_of_draws():
    low, high = POSTERIOR.interval(0.9).T
    assert (low + high) / 2 == pytest.approx(POSTERIOR.mean)
    draws = POSTERIOR.sample(40_000, np.random.default_rng(1))
    # Standard error .0015; five of them: false alarm below 1e-6.
    inside = np.mean((low <= draws) & (draws <= high), axis=0)
    assert inside == pytest.approx([0.9, 0.9], abs=0.0075)


def test_draws_have_the_posteriors_mean_and_covariance():
    draws = POSTERIOR.sample(40_000, np.random.default_rng(2))
    assert draws.mean(axis=0) == pytest.approx(POSTERIOR.mean, abs=0.0075)
    assert np.cov(draws.T).ravel() == pytest.approx(POSTERIOR.covariance_matrix.ravel(), abs=0.004)


def test_predictions_add_the_residual_to_the_coefficients_uncertainty():
    mean, sd = POSTERIOR.predict(np.array([[0.0], [3.0]]))
    assert mean == pytest.approx([1.0, 7.0])
    assert sd == pytest.approx([np.sqrt(0.04 + 0.25), np.sqrt(0.04 - 0.06 + 0.81 + 0.25)])


@pytest.mark.parametrize(
    "change",
    [
        {"coefficients": (1.0,)},
        {"covariance": ((1.0, 0.0),)},
        {"covariance": ((1.0, 0.0), (0.0,))},
        {"coefficients": (1.0, float("nan"))},
        {"residual_sd": 0.0},
        {"records": 0},
        {"p_value": 0.03},
    ],
)
def test_a_posterior_whose_parts_disagree_is_refused(change):
    with pytest.raises(ValidationError):
        LinearRegressionPosterior.model_validate(POSTERIOR.model_dump() | change)
