"""Whoever holds a certificate can make another inference of its sums."""

import importlib.util

import numpy as np
import pytest

from shoal_learning import linear_regression
from shoal_learning.conditional_design import CoefficientDraws
from shoal_learning.refitting import refit
from shoal_learning.refusals import NoReliablePosterior
from shoal_protocol.certificate_checks import verify_certificate
from shoal_protocol.posteriors import LinearRegressionDraws, LinearRegressionPosterior
from shoal_protocol.questions import ReleasedSum
from tests.protocol.certified import ONE_ROUND


def verified():
    return verify_certificate(ONE_ROUND.encode(), ONE_ROUND.manifest)


def test_the_default_inference_of_a_certificate_is_made_again_from_its_sums():
    found = refit(verified(), inference="quasi_likelihood")
    assert isinstance(found, LinearRegressionPosterior)
    (released,) = verified().certificate.rounds
    assert 0 < found.records <= released.result.body.cohort_size
    assert refit(verified(), inference="quasi_likelihood") == found


def test_another_inference_sees_the_same_sums(monkeypatch):
    seen = []

    def sampled(design):
        seen.append(design)
        standard = np.random.default_rng(1).standard_normal((4, 100, len(design.prior_sd)))
        return CoefficientDraws(coefficients=standard, residual_sd=np.ones((4, 100)), divergences=0)

    monkeypatch.setattr(linear_regression, "conditional_posterior", sampled)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    found = refit(verified(), inference="conditional_design")
    assert isinstance(found, LinearRegressionDraws)
    (design,) = seen
    (released,) = verified().certificate.rounds
    sums = ReleasedSum.of(released.spec.body, released.result.body)
    assert np.array_equal(design.moments.matrix, sums.query.matrix_from(sums.values))
    assert design.most == sums.cohort_size * sums.query.records_per_client


def test_an_inference_that_is_not_installed_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoReliablePosterior, match=r"shoal-learning\[numpyro\]"):
        refit(verified(), inference="conditional_design")
