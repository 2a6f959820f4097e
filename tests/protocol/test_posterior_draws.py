"""Posteriors that consist of draws: what they say, how they travel, and what ArviZ reads."""

import arviz
import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from shoal_protocol.posteriors.forms import MOST_VALUES, effective_sample_size, encoded, split_r_hat
from shoal_protocol.studies import Posterior
from shoal_protocol.studies.normals import NormalPosterior

MEAN = np.array([1.0, 2.0])
COVARIANCE = np.array([[0.04, -0.01], [-0.01, 0.09]])


def chains(count=1000, seed=1):
    return np.random.default_rng(seed).multivariate_normal(MEAN, COVARIANCE, (4, count))


def posterior(draws=None):
    draws = chains() if draws is None else draws
    return NormalPosterior.of("dose", draws, divergences=0, records=100)


def autoregressive(correlation, count, seed):
    noise = np.random.default_rng(seed).standard_normal((4, count))
    draws = noise.copy()
    for step in range(1, count):
        draws[:, step] = correlation * draws[:, step - 1]
        draws[:, step] += np.sqrt(1.0 - correlation**2) * noise[:, step]
    return draws


def test_it_predicts_a_record_with_the_scatter_of_both_parameters():
    mean, sd = posterior().predict()
    assert mean == pytest.approx([1.0], abs=0.02)
    assert sd == pytest.approx([np.sqrt(2.0**2 + 0.09 + 0.04)], abs=0.02)


def test_a_skewed_parameter_has_equal_tails_not_a_symmetric_interval():
    skewed = np.exp(chains())
    low, high = posterior(skewed).interval(0.9)[1]
    assert np.mean(skewed[:, :, 1] < low) == pytest.approx(0.05, abs=1e-3)
    assert np.mean(skewed[:, :, 1] > high) == pytest.approx(0.05, abs=1e-3)


def test_it_survives_its_document_bit_for_bit():
    found = posterior()
    read = TypeAdapter(Posterior).validate_json(found.model_dump_json())
    assert read == found
    assert np.array_equal(read.draws, chains())
    assert not read.draws.flags.writeable


@pytest.mark.parametrize(
    "change",
    [
        {"chains": 3},
        {"values": encoded(chains())[:-4]},
        {"values": encoded(np.full((4, 1000, 2), np.nan))},
        {"values": encoded(np.zeros((4, 2, 2)))},
        {"values": encoded(np.zeros((4, MOST_VALUES // 4, 2)))},
        {"values": "not base64!"},
        {"values": ""},
        {"divergences": -1},
        {"r_hat": [1.0, 1.0]},
    ],
)
def test_draws_whose_parts_disagree_are_refused(change):
    with pytest.raises(ValidationError):
        NormalPosterior.model_validate(posterior().model_dump() | change)


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.5, 0.9])
@pytest.mark.parametrize("count", [501, 1000])
def test_diagnostics_agree_with_arviz(correlation, count):
    draws = autoregressive(correlation, count, seed=3)
    data = arviz.convert_to_dataset(draws)
    assert split_r_hat(draws) == pytest.approx(float(arviz.rhat(data).x), rel=1e-9)
    sizes = [float(arviz.ess(data, method=method).x) for method in ("bulk", "tail")]
    # ArviZ adds a last positive term to the sum, which is within its noise.
    assert effective_sample_size(draws) == pytest.approx(min(sizes), rel=0.05)


def test_chains_in_different_places_are_told_from_mixed_ones():
    draws = chains()
    assert np.all(posterior(draws).r_hat < 1.01)
    assert np.all(posterior(draws).effective_sample_size > 2000)
    draws[0] += 3.0 * np.sqrt(np.diagonal(COVARIANCE))
    assert np.all(posterior(draws).r_hat > 1.2)
    assert np.all(posterior(draws).effective_sample_size < 50)


def test_stuck_chains_are_told_from_a_constant():
    stuck = np.repeat(np.arange(4.0)[:, None], 100, axis=1)
    assert split_r_hat(stuck) > 1e6
    assert split_r_hat(np.ones((4, 100))) == 1.0
    assert effective_sample_size(stuck) < 10
