"""Posteriors that consist of draws: what they say, how they travel, and what ArviZ reads."""

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from shoal_studies.catalogue.normals import NormalPosterior
from shoal_studies.posteriors.forms import MOST_VALUES, encoded
from shoal_studies.registry import Posterior

MEAN = np.array([1.0, 2.0])
COVARIANCE = np.array([[0.04, -0.01], [-0.01, 0.09]])


def drawn(count=4000, seed=1):
    return np.random.default_rng(seed).multivariate_normal(MEAN, COVARIANCE, count)


def posterior():
    return NormalPosterior.thinned(drawn(), columns=("dose",), records=100)


def test_it_survives_its_document_bit_for_bit():
    found = posterior()
    read = TypeAdapter(Posterior).validate_json(found.model_dump_json())
    assert read == found
    assert np.array_equal(read.draws, drawn())
    assert not read.draws.flags.writeable


@pytest.mark.parametrize(
    "change",
    [
        {"values": encoded(drawn().ravel()[:-1])},
        {"values": encoded(drawn())[:-4]},
        {"values": encoded(np.full((1000, 2), np.nan))},
        {"values": encoded(np.zeros((MOST_VALUES, 2)))},
        {"values": "not base64!"},
        {"values": ""},
        {"r_hat": [1.0, 1.0]},
    ],
)
def test_draws_whose_parts_disagree_are_refused(change):
    with pytest.raises(ValidationError):
        NormalPosterior.model_validate(posterior().model_dump() | change)
