"""What an analyst reads off a posterior."""

import pytest
from pydantic import ValidationError

from shoal_studies.catalogue.linear_regression import LinearRegressionPosterior

POSTERIOR = LinearRegressionPosterior(
    names=("intercept", "dose"),
    target="response",
    coefficients=(1.0, 2.0),
    covariance=((0.04, -0.01), (-0.01, 0.09)),
    residual_sd=0.5,
    records=100,
    prior_mean=(0.0, 0.0),
    prior_sd=(100.0, 100.0),
)


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
