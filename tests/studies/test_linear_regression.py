"""The learner of linear regression: right without noise, honest with it, the same when replayed."""

import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from bench.calibration import covered, from_prior, naive, typical, unit_task
from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.queries import SecondMomentMatrix, SecondMoments
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue import linear_regression
from shoal_studies.catalogue.linear_regression import (
    LinearRegression,
    LinearRegressionPosterior,
    LinearRegressionTask,
    RegressionMethod,
    choose_thresholds,
    thresholds_for,
)
from shoal_studies.contract import RequestedRound
from shoal_studies.quasi_likelihood import NoisyMoments, noise_aware_posterior
from shoal_studies.simulation import Federation, run

PEOPLE = LinearRegressionTask(
    features=(
        ColumnBounds(name="age", lower=0.0, upper=100.0),
        ColumnBounds(name="weight", lower=40.0, upper=140.0),
    ),
    target=ColumnBounds(name="pressure", lower=50.0, upper=250.0),
    method="plain",
    radius=3.0,
)


METHODS = get_args(RegressionMethod)


def people(generator, count):
    age = generator.uniform(20.0, 80.0, count)
    weight = generator.normal(80.0, 12.0, count)
    pressure = 60.0 + 0.6 * age + 0.5 * weight + generator.normal(0.0, 6.0, count)
    return np.column_stack([age, weight, pressure])


def exact_sum(query, records):
    many = query.model_copy(update={"records_per_client": len(records)})
    return ReleasedSum(
        query=query,
        values=many.encode(records),
        cohort_size=len(records),
        noise_sd=np.full(query.dimension, 1e-3),
        mechanism="discrete_gaussian",
    )


def without_noise(task, records):
    learner, sums = LinearRegression(task), []
    while isinstance(step := learner.next(len(records), sums), RequestedRound):
        sums.append(exact_sum(step.query, records))
    return step, sums


def federation(records, epsilon):
    return Federation(
        population=len(records),
        missing=10,
        dropouts=20,
        colluders=10,
        epsilon=epsilon,
        delta=1e-5,
    )


def least_squares(records):
    design = np.column_stack([np.ones(len(records)), records[:, :-1]])
    fit, *_ = np.linalg.lstsq(design, records[:, -1], rcond=None)
    residual = records[:, -1] - design @ fit
    variance = residual @ residual / (len(records) - design.shape[1])
    return fit, np.sqrt(np.diagonal(variance * np.linalg.inv(design.T @ design))), variance**0.5


@pytest.mark.parametrize("intercept", [0.3, 1.0])
def test_without_noise_or_cutting_the_posterior_is_that_of_least_squares(intercept):
    records = people(np.random.default_rng(0), 3000)
    task = PEOPLE.model_copy(update={"intercept": intercept, "prior_sd": 100.0, "radius": None})
    query = SecondMomentMatrix(
        columns=tuple(column.column() for column in task.columns),
        intercept=intercept,
        radius=None,
        grid_bits=15,
        records_per_client=1,
    )
    posterior = LinearRegression(task).next(len(records), [exact_sum(query, records)])
    fit, sd, residual_sd = least_squares(records)
    assert posterior.names == ("intercept", "age", "weight")
    assert posterior.target == "pressure"
    assert posterior.records == len(records)
    assert np.all(np.abs(posterior.mean - fit) < 0.1 * sd)
    assert posterior.sd == pytest.approx(sd, rel=0.03)
    assert posterior.residual_sd == pytest.approx(residual_sd, rel=0.03)


def test_the_first_query_depends_on_public_numbers_only():
    learner = LinearRegression(PEOPLE.model_copy(update={"radius": None}))
    few, many = (learner.next(population, []).query.radius for population in (400, 40_000))
    assert few == pytest.approx(math.sqrt(0.3**2 + 0.13 * 3), rel=1e-5)
    assert many > few


def test_projection_measures_spreads_first_and_scales_the_second_round_by_them():
    records = people(np.random.default_rng(3), 2000)
    wide = LinearRegressionTask(
        features=(
            ColumnBounds(name="age", lower=0.0, upper=100.0),
            ColumnBounds(name="weight", lower=-920.0, upper=1080.0),
        ),
        target=ColumnBounds(name="pressure", lower=50.0, upper=250.0),
        method="ball_projection",
    )
    learner = LinearRegression(wide)
    first = learner.next(2000, [])
    assert isinstance(first.query, SecondMoments)
    assert first.share == 0.2
    assert [column.scale for column in first.query.columns] == [50.0, 1000.0, 100.0]
    second = learner.next(2000, [exact_sum(first.query, records)])
    assert isinstance(second.query, SecondMomentMatrix)
    age, weight, _ = (column.scale for column in second.query.columns)
    spread_of_age = math.sqrt(np.mean((records[:, 0] - 50.0) ** 2))
    # Age's threshold times its spread; weight is as narrow as the floor of .05 allows.
    assert weight / age == pytest.approx(50.0 / spread_of_age, rel=0.05)
    assert [column.centre for column in second.query.columns] == [50.0, 80.0, 150.0]


def test_under_strong_noise_the_thresholds_are_those_that_a_search_of_all_finds_and_low():
    task = unit_task(10, method="box_projection")
    setting = {"records": 400, "mechanism": "discrete_gaussian", "noise_ratio": 5.0}
    chosen = choose_thresholds(task, **setting)
    assert chosen.features < 1.5
    every = list(thresholds_for(task))
    errors = linear_regression._mean_errors(every, task=task, **setting)
    assert errors[every.index(chosen)] < 1.02 * errors.min()
    low = [each for each in every if max(each.features, each.target) <= 2.1]
    assert len(low) == 21**2
    assert min(each.features for each in low) == 0.1


def test_shares_thresholds_and_residuals_are_those_that_are_given():
    records = people(np.random.default_rng(3), 2000)
    fields = {"method": "box_projection", "measuring_share": 0.35, "thresholds": (1.7, 2.9)}
    task = PEOPLE.model_copy(update={**fields, "residual_sd": 0.5})
    learner = LinearRegression(task)
    first = exact_sum(learner.next(2000, []).query, records)
    assert learner.shares() == (0.35, 0.65)
    scales = [column.scale for column in learner.next(2000, [first]).query.columns]
    spreads = np.sqrt(np.mean((records - [50.0, 90.0, 150.0]) ** 2, axis=0))
    assert scales == pytest.approx(spreads * [1.7, 1.7, 2.9], rel=1e-2)
    assert without_noise(task, records)[0].residual_sd == pytest.approx(0.5 * spreads[-1], rel=0.01)
    known, learned = (
        without_noise(PEOPLE.model_copy(update={"residual_sd": each}), records)[0]
        for each in (0.12, None)
    )
    assert known.sd[1:] == pytest.approx(12.0 / learned.residual_sd * learned.sd[1:], rel=0.1)


@pytest.mark.parametrize("thresholds", [(0.4, 0.4), (1.0, 2.1), (2.5, 0.7)])
def test_intervals_of_a_projection_count_what_cutting_does_to_weak_slopes_of_normal_columns(
    thresholds,
):
    generator = np.random.default_rng(8)
    x = generator.normal(0.0, 0.2, (100_000, 2))
    y = x @ [0.3, -0.2] + generator.normal(0.0, 0.19, len(x))
    task = unit_task(2, method="box_projection").model_copy(
        update={"thresholds": thresholds, "prior_sd": 10.0}
    )
    posterior, _ = without_noise(task, np.column_stack([x, y]))
    pulls = np.abs(posterior.mean[1:] - [0.3, -0.2])
    assert posterior.sd[1:] == pytest.approx(pulls, rel=0.25)


@settings(max_examples=30)
@given(shift=st.floats(-1e3, 1e3), factor=st.floats(1e-3, 1e3), column=st.integers(0, 2))
def test_other_units_change_the_coefficients_but_not_the_predictions(shift, factor, column):
    records = people(np.random.default_rng(5), 300)
    changed = records.copy()
    changed[:, column] = shift + factor * changed[:, column]
    bounds = list(PEOPLE.columns)
    bounds[column] = ColumnBounds(
        name=bounds[column].name,
        lower=shift + factor * bounds[column].lower,
        upper=shift + factor * bounds[column].upper,
    )
    task = PEOPLE.model_copy(update={"features": tuple(bounds[:2]), "target": bounds[2]})
    mean, sd = without_noise(PEOPLE, records)[0].predict(records[:, :2])
    new_mean, new_sd = without_noise(task, changed)[0].predict(changed[:, :2])
    if column == 2:
        new_mean, new_sd = (new_mean - shift) / factor, new_sd / factor
    # Rounding to the grid may differ in the last step, so the two agree to a part in 1e4.
    assert new_mean == pytest.approx(mean, rel=1e-3)
    assert new_sd == pytest.approx(sd, rel=1e-2)


@pytest.mark.slow
@pytest.mark.essential
@pytest.mark.parametrize(
    ("draw", "features", "method", "epsilon", "delta"),
    [
        (typical, 3, "plain", 1.0, 1e-5),
        (from_prior, 5, "plain", 5.0, 1e-5),
        (typical, 3, "ball_projection", 4.0, 0.0),
    ],
)
def test_nine_in_ten_intervals_hold_with_noise_and_fewer_when_it_is_ignored(
    draw, features, method, epsilon, delta
):
    # 60 data sets, 180 or 300 slopes; correlated within a set, the standard error is below .03.
    # True coverage is .87 to .95 here, so leaving [.78, 1] is a 3-sigma event: false alarm < .3 %.
    generator = np.random.default_rng(6)
    learner = LinearRegression(unit_task(features, method=method))
    held, held_naively = [], []
    for _ in range(60):
        truth = draw(generator, 600, features)
        setting = replace(federation(truth.records, epsilon), delta=delta)
        outcome = run(learner, truth.records, setting, generator)
        held.append(np.mean(covered(outcome.posterior, truth)[1:]))
        held_naively.append(np.mean(covered(naive(learner, outcome, 600), truth)[1:]))
    assert 0.78 <= np.mean(held) <= 1.0
    assert np.mean(held_naively) < np.mean(held) - 0.08


def test_the_noise_that_a_posterior_counts_is_that_of_the_whole_cohort():
    # 20 dropouts were paid for and 10 happened: the noise is that of the 590 clients present,
    # 590 / 569 times the variance that privacy counts.
    generator = np.random.default_rng(17)
    records = typical(generator, 600, 3).records
    for delta in (0.0, 1e-5):
        setting = replace(federation(records, 4.0), delta=delta)
        [released] = run(
            LinearRegression(unit_task(3, method="plain")), records, setting, generator
        ).sums
        design = released.query.design(released.mechanism)
        cap = Cap(epsilon=4.0, delta=delta)
        needed = (
            math.sqrt(2.0) * design.sensitivity / 4.0
            if delta == 0.0
            else design.sensitivity / cap.whole.mu
        )
        present = math.sqrt(590 / 569)
        assert released.noise_sd[0] == pytest.approx(needed * present, rel=1e-6)


def test_several_records_per_client_are_counted_through_noise():
    records = people(np.random.default_rng(9), 1200)
    task = PEOPLE.model_copy(update={"records_per_client": 4, "radius": 3.0})
    learner = LinearRegression(task)
    query = learner.next(400, []).query
    whole = exact_sum(query, records)
    posterior = learner.next(400, [replace(whole, cohort_size=400)])
    assert posterior.records == 1200
    fit, *_ = least_squares(records)
    assert posterior.mean[1:] == pytest.approx(fit[1:], rel=0.2)


WIDE, NARROW, OFF = (-1e30, 1e30), (0.0, 1e-30), (1e30 * (1 - 2e-9), 1e30)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("prior_sd", [1e-6, 1e6])
@pytest.mark.parametrize(("feature", "target"), [(WIDE, NARROW), (NARROW, WIDE), (OFF, OFF)])
@pytest.mark.parametrize(("radius", "intercept"), [(None, 1.0), (2.0**-15, 2.0**-15), (1e6, 0.0)])
def test_a_task_as_extreme_as_can_be_ends_in_a_posterior(
    method, prior_sd, feature, target, radius, intercept
):
    task = LinearRegressionTask(
        features=(ColumnBounds(name="x", lower=feature[0], upper=feature[1]),),
        target=ColumnBounds(name="y", lower=target[0], upper=target[1]),
        method=method,
        radius=radius,
        intercept=intercept,
        prior_sd=prior_sd,
        grid_bits=15,
    )
    generator = np.random.default_rng(18)
    for largest, noise_sd in ((0, 1.0), (20 * 2**30, 1e-3), (20 * 2**30, 1e6)):
        learner, sums = LinearRegression(task), []
        while isinstance(step := learner.next(25, sums), RequestedRound):
            shape = step.query.dimension
            sums.append(
                ReleasedSum(
                    query=step.query,
                    values=generator.integers(-largest, largest, shape, endpoint=True),
                    cohort_size=20,
                    noise_sd=np.full(shape, noise_sd),
                    mechanism="discrete_gaussian",
                )
            )
        assert isinstance(step, LinearRegressionPosterior)


def test_arithmetic_that_a_float_does_not_hold_is_an_error_and_no_wrong_answer():
    moments = NoisyMoments(
        matrix=np.eye(2),
        diagonal_sd=1.0,
        off_diagonal_sd=1.0,
        records=3,
        records_sd=0.0,
        largest_square=math.inf,
    )
    with pytest.raises(ArithmeticError):
        noise_aware_posterior(moments, np.array([1e-200]))


@pytest.mark.parametrize(
    "change",
    [
        {"features": ()},
        {"features": (PEOPLE.features[0], PEOPLE.features[0])},
        {"features": (PEOPLE.target,)},
        {"features": ({"name": "intercept", "lower": 0.0, "upper": 1.0},)},
        {"target": {"name": "y", "lower": 1.0, "upper": 1.0}},
        {"target": {"name": "y", "lower": 1.0, "upper": 0.0}},
        {"target": {"name": "y", "lower": 0.0, "upper": math.inf}},
        {"target": {"name": "y", "lower": math.nan, "upper": 1.0}},
        {"target": {"name": "y\x00", "lower": 0.0, "upper": 1.0}},
        {"radius": 0.0},
        {"radius": 1e-9},
        {"intercept": 1e-9},
        {"radius": 1.1e6},
        {"prior_sd": 0.0},
        {"prior_sd": 1e-200},
        {"prior_sd": 9e-7},
        {"target": {"name": "y", "lower": 0.0, "upper": 5e-324}},
        {"target": {"name": "y", "lower": 0.0, "upper": 9e-31}},
        {"target": {"name": "y", "lower": 0.0, "upper": 1.1e30}},
        {"target": {"name": "y", "lower": -1.7e308, "upper": 1.7e308}},
        {"target": {"name": "y", "lower": 1.0, "upper": 1.0 + 9e-10}},
        {"grid_bits": 9},
        {"name": "anything_else"},
        {"code": "import os"},
    ],
)
def test_a_task_that_contradicts_itself_is_refused(change):
    with pytest.raises(ValidationError):
        LinearRegressionTask.model_validate(PEOPLE.model_dump() | change)
