"""Inference given the design: the conjugate answer without noise, honest with it, or a refusal."""

import importlib.util
import re
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from shoal_learning import conditional_design, linear_regression
from shoal_learning.conditional_design import (
    CoefficientDraws,
    check_feasible,
    conditional_posterior,
    failure,
)
from shoal_learning.design_moments import DesignMoments
from shoal_learning.linear_regression import LinearRegression
from shoal_learning.quasi_likelihood import NoisyMoments, noise_aware_posterior
from shoal_learning.refusals import NoReliablePosterior
from shoal_learning.simulation import Federation, run
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.studies.linear_regression import LinearRegressionDraws, LinearRegressionTask

RECORDS, CONSTANT, PRIOR_SD = 2000, 0.3, 0.5
TASK = LinearRegressionTask(
    features=(
        ColumnBounds(name="age", lower=0.0, upper=100.0),
        ColumnBounds(name="weight", lower=40.0, upper=140.0),
    ),
    target=ColumnBounds(name="pressure", lower=50.0, upper=250.0),
    method="plain",
    inference="conditional_design",
)


def moments(noise_sd, seed=1):
    """Return noisy moments of rows (constant, x, y) about y = .1 + .4 x, residuals .2."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1.0, 1.0, RECORDS)
    y = 0.1 + 0.4 * x + 0.2 * generator.standard_normal(RECORDS)
    rows = np.column_stack([np.full(RECORDS, CONSTANT), x, y])
    noise = np.triu(noise_sd * generator.standard_normal((3, 3)))
    return NoisyMoments(
        matrix=rows.T @ rows + noise + np.triu(noise, 1).T,
        diagonal_sd=noise_sd,
        off_diagonal_sd=noise_sd,
        records=RECORDS,
        records_sd=5.0,
        largest_square=2.0,
    )


def design_of(noise_sd):
    return DesignMoments(
        moments=moments(noise_sd),
        prior_sd=np.full(2, PRIOR_SD),
        constant=CONSTANT,
        squared_radius=None,
        most=RECORDS,
        seen=RECORDS + 3.0,
        seen_sd=5.0,
        laplace=False,
    )


def conjugate(matrix):
    """Return mean and sd of b, and of s, without noise: on a fine grid of s, b is normal."""
    from shoal_learning.design_model import PRIOR_RESIDUAL_SD

    gram, cross, square = matrix[:-1, :-1], matrix[:-1, -1], matrix[-1, -1]
    grid = np.linspace(0.15, 0.25, 2001)
    means, variances, weights = [], [], []
    for s in grid:
        precision = gram / s**2 + np.eye(2) / PRIOR_SD**2
        mean = np.linalg.solve(precision, cross / s**2)
        weights.append(
            -RECORDS * np.log(s)
            - 0.5 * np.linalg.slogdet(precision)[1]
            - 0.5 * (square / s**2 - mean @ precision @ mean)
            - 0.5 * (s / PRIOR_RESIDUAL_SD) ** 2
        )
        means.append(mean)
        variances.append(np.diagonal(np.linalg.inv(precision)))
    weight = np.exp(np.array(weights) - np.max(weights))
    weight /= weight.sum()
    mean = weight @ np.array(means)
    variance = weight @ (np.array(variances) + np.array(means) ** 2) - mean**2
    s_mean = weight @ grid
    return mean, np.sqrt(variance), s_mean, np.sqrt(weight @ (grid - s_mean) ** 2)


def draws_about(mean, sd, shape=(4, 500), seed=2):
    generator = np.random.default_rng(seed)
    standard = generator.standard_normal((*shape, len(mean)))
    return CoefficientDraws(
        coefficients=mean + sd * standard,
        residual_sd=0.2 + 0.01 * generator.standard_normal(shape),
        divergences=0,
    )


GOOD = draws_about(np.zeros(2), np.ones(2))


@pytest.mark.slow
def test_without_noise_it_is_the_conjugate_answer_and_with_some_agrees_with_the_quasi_likelihood():
    pytest.importorskip("numpyro")
    without = conditional_posterior(design_of(1e-4))
    mean, sd, s_mean, s_sd = conjugate(moments(1e-4).matrix)
    # At least 400 effective draws of 6 numbers: five standard errors, false alarm below 1e-5.
    assert without.coefficients.mean(axis=(0, 1)) == pytest.approx(mean, abs=0.25 * sd.min())
    assert without.coefficients.std(axis=(0, 1)) == pytest.approx(sd, rel=0.18)
    assert without.residual_sd.mean() == pytest.approx(s_mean, abs=0.25 * s_sd)
    assert without.residual_sd.std() == pytest.approx(s_sd, rel=0.18)

    noisy = design_of(20.0)
    draws = conditional_posterior(noisy)
    normal = noise_aware_posterior(noisy.moments, noisy.prior_sd)
    normal_sd = np.sqrt(np.diagonal(normal.covariance))
    assert np.all(normal_sd > 1.5 * sd), "the noise is to be of weight"
    gaps = np.abs(draws.coefficients.mean(axis=(0, 1)) - normal.mean) / normal_sd
    assert np.all(gaps < 0.5)
    assert draws.coefficients.std(axis=(0, 1)) == pytest.approx(normal_sd, rel=0.3)

    again = conditional_posterior(noisy)
    assert np.array_equal(again.coefficients, draws.coefficients), "draws follow from the sums"


def test_good_draws_pass():
    assert failure(GOOD) is None


def shifted():
    coefficients = GOOD.coefficients.copy()
    coefficients[0] += 1.0
    return replace(GOOD, coefficients=coefficients)


def stuck():
    return replace(GOOD, coefficients=np.repeat(GOOD.coefficients[:, ::50], 50, axis=1))


def unmoved_scale():
    return replace(GOOD, residual_sd=np.repeat([[0.1], [0.2], [0.3], [0.4]], 500, axis=1))


@pytest.mark.parametrize(
    ("draws", "reason"),
    [
        (replace(GOOD, divergences=1), "1 divergent"),
        (shifted(), "R-hat"),
        (unmoved_scale(), "R-hat"),
        (stuck(), "R-hat|effective sample size"),
        (draws_about(np.zeros(2), np.ones(2), shape=(4, 90), seed=1), "effective sample size"),
        (replace(GOOD, coefficients=np.full((4, 500, 2), np.nan)), "not finite"),
    ],
)
def test_draws_that_cannot_be_trusted_are_told(draws, reason):
    assert re.search(reason, failure(draws) or "nothing is wrong")


def test_chains_that_fail_are_tried_again_with_shorter_steps_and_then_refused(monkeypatch):
    asked = []

    def failing(design, attempt, *, target_acceptance, thinning):
        asked.append((attempt, target_acceptance, thinning))
        return shifted()

    monkeypatch.setattr(conditional_design, "sample", failing)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(NoReliablePosterior, match=r"3 attempts .*R-hat.*quasi_likelihood"):
        conditional_posterior(design_of(1.0))
    attempts, acceptances, thinnings = zip(*asked, strict=True)
    assert attempts == (0, 1, 2)
    assert list(acceptances) == sorted(set(acceptances))
    assert list(thinnings) == sorted(set(thinnings))


def test_a_second_attempt_that_passes_is_the_answer(monkeypatch):
    answers = iter([replace(GOOD, divergences=3), GOOD])
    monkeypatch.setattr(conditional_design, "sample", lambda *_, **__: next(answers))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert conditional_posterior(design_of(1.0)) is GOOD


@pytest.mark.parametrize(
    ("coefficients", "records", "reason"),
    [(33, 10_000, "at most 32"), (10, 10, "more records than coefficients")],
)
def test_what_can_never_be_sampled_is_refused_before_anything_is_spent(
    coefficients, records, reason
):
    with pytest.raises(NoReliablePosterior, match=reason):
        check_feasible(coefficients, records)


def test_without_numpyro_the_job_is_refused_at_its_first_round(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoReliablePosterior, match="LOCK=numpyro"):
        LinearRegression(TASK).next(100, [])
    quick = TASK.model_copy(update={"inference": "quasi_likelihood"})
    assert LinearRegression(quick).next(100, []).share == 1.0


def test_the_draws_are_in_the_units_of_the_data(monkeypatch):
    """The sampler is replaced by draws of the quasi-likelihood: both answers must then agree."""
    generator = np.random.default_rng(3)
    age, weight = generator.uniform(20.0, 80.0, 900), generator.normal(80.0, 12.0, 900)
    pressure = 60.0 + 0.6 * age + 0.5 * weight + generator.normal(0.0, 6.0, 900)
    records = np.column_stack([age, weight, pressure])
    setting = Federation(
        population=900, missing=0, dropouts=0, colluders=0, epsilon=5.0, delta=1e-5
    )
    quick = TASK.model_copy(update={"inference": "quasi_likelihood"})
    outcome = run(LinearRegression(quick), records, setting, generator)
    seen = []

    def sampled(design):
        seen.append(design)
        found = noise_aware_posterior(design.moments, design.prior_sd)
        root = np.linalg.cholesky(found.covariance)
        standard = np.random.default_rng(4).standard_normal((4, 2000, len(found.mean)))
        return CoefficientDraws(
            coefficients=found.mean + standard @ root.T,
            residual_sd=np.full((4, 2000), found.residual_sd),
            divergences=0,
        )

    monkeypatch.setattr(linear_regression, "conditional_posterior", sampled)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    found = LinearRegression(TASK).next(900, outcome.sums)
    assert isinstance(found, LinearRegressionDraws)
    assert found.names == outcome.posterior.names
    # Standard error .011 of a deviation: seven of them, false alarm below 1e-10.
    assert np.all(np.abs(found.mean - outcome.posterior.mean) < 0.08 * outcome.posterior.sd)
    assert found.sd == pytest.approx(outcome.posterior.sd, rel=0.06)
    assert found.residual_sd == pytest.approx(outcome.posterior.residual_sd, rel=0.2)
    (design,) = seen
    assert design.constant == pytest.approx(TASK.intercept, abs=2.0**-TASK.grid_bits)
    assert design.squared_radius == pytest.approx(outcome.sums[0].query.radius ** 2, rel=1e-3)
    assert (design.most, design.laplace) == (outcome.sums[0].cohort_size, False)


def test_an_inference_that_nobody_knows_is_refused():
    with pytest.raises(ValidationError):
        LinearRegressionTask.model_validate(TASK.model_dump() | {"inference": "wishful"})


@pytest.mark.parametrize("method", ["box_projection", "ball_projection", "unit_rows"])
def test_rows_that_are_cut_column_by_column_have_no_inference_given_the_design(method):
    with pytest.raises(ValidationError, match="plain or norm_ball"):
        LinearRegressionTask.model_validate(TASK.model_dump() | {"method": method})


def test_the_kind_of_posterior_is_that_of_the_inference():
    assert TASK.posterior_names == ("linear_regression_draws",)
    quick = TASK.model_copy(update={"inference": "quasi_likelihood"})
    assert quick.posterior_names == ("linear_regression",)
