"""Verdicts on columns and targets that are not what the analyst takes them for.

Thresholds are far from what is asserted here: no test fails by chance once in a thousand runs.
"""

from typing import Any

import numpy as np
import pytest

from shoal import SimulatedFederation
from shoal.estimators import (
    GammaRegression,
    LinearRegression,
    LinearRegressionInBounds,
    LogisticRegression,
    Moments,
    PiecewiseExponentialRegression,
    PoissonRegression,
)
from shoal_learning.learners import learner_for
from shoal_learning.regression.judging import Tangled
from shoal_learning.simulation import Federation, run

AGE, WAGE, SCHOOL = (16.0, 95.0), (0.0, 60.0), (0.0, 20.0)
MONTHS, CENTS = (192.0, 1140.0), (500.0, 6000.0)


def workers(count: int = 4000) -> dict[str, np.ndarray]:
    """Return workers as a survey has them: lopsided ages and wages, years of school, and sex."""
    generator = np.random.default_rng(1)
    age = np.clip(16.0 + generator.gamma(3.0, 7.5, count), 16.0, 95.0)
    school = np.clip(generator.normal(13.0, 3.0, count), 0.0, 20.0)
    wage = (3.0 + 0.6 * school + 0.15 * age) * generator.gamma(9.0, 1 / 9, count)
    return {
        "age": age,
        "school": school,
        "wage": wage,
        "male": generator.integers(0, 2, count).astype(float),
        "sex": 1.0 + (generator.random(count) < 0.1),
    }


def there(seed: int = 1, epsilon: float = 2.0, **columns: np.ndarray) -> SimulatedFederation:
    return SimulatedFederation(
        {**workers(), **columns},
        epsilon=epsilon,
        delta=1e-5,
        dropouts=20,
        colluders=20,
        seed=seed,
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [LinearRegression, LogisticRegression, GammaRegression])
def test_a_column_in_another_unit_is_doubted(kind: Any, seed: int) -> None:
    target = {"male": (0, 1)} if kind is LogisticRegression else {"wage": WAGE}
    plain = kind(features={"school": SCHOOL, "age": AGE}, target=target).fit(there(seed))
    assert "at or beyond its bound" not in plain.verdict_
    model = kind(features={"school": SCHOOL, "age": MONTHS}, target=target).fit(there(seed))
    assert model.verdict_.startswith("doubtful: age: nearly all values are at or beyond its bound")
    assert "its bound 192: is the unit right?" in model.verdict_


@pytest.mark.parametrize("seed", range(3))
def test_a_target_in_another_unit_is_doubted(seed: int) -> None:
    for kind, bounds, bound in (
        (LinearRegression, CENTS, "500"),
        (GammaRegression, CENTS, "500"),
        (LinearRegression, (0.0, 4.0), "4"),
    ):
        model = kind(features={"school": SCHOOL, "age": AGE}, target={"wage": bounds})
        verdict = model.fit(there(seed)).verdict_
        assert f"wage: nearly all values are at or beyond its bound {bound}: is" in verdict


@pytest.mark.parametrize("seed", range(3))
def test_a_column_most_of_which_is_cut_is_doubted(seed: int) -> None:
    model = LinearRegression(features={"school": SCHOOL, "age": (16, 30)}, target={"wage": WAGE})
    assert "age: a large share of the values is at or beyond its bound 30" in (
        model.fit(there(seed)).verdict_
    )


@pytest.mark.parametrize("seed", range(3))
def test_wide_lopsided_and_binary_columns_are_not_doubted_for_their_bounds(seed: int) -> None:
    model = LinearRegression(
        features={"school": (-20, 60), "age": (-300, 95), "sex": (1, 2)},
        target={"wage": (-60, 180)},
    )
    assert "bound" not in model.fit(there(seed)).verdict_


@pytest.mark.parametrize("seed", range(3))
def test_moments_say_which_columns_bounds_cut(seed: int) -> None:
    model = Moments(columns={"wage": WAGE, "age": MONTHS, "school": SCHOOL}).fit(there(seed))
    said = "age: nearly all values are at or beyond its bound 192: is the unit right?"
    assert said in str(model.posterior_.caution)
    assert said in str(model.summary())
    answers = model.answers_
    for each in (answers.correlations(), answers.partial_correlations()):
        assert said in str(each.summary())
    assert said in str(answers.linear_model("wage", ["age", "school"]).verdict)
    assert answers.linear_model("wage", ["school"]).verdict.kind == "trustworthy"


@pytest.mark.parametrize("target", ["age", "wage", "school"])
def test_a_logistic_regression_of_a_quantity_is_refused(target: str) -> None:
    model = LogisticRegression(features={"male": (0, 1)}, target={target: (0, 60)})
    with pytest.raises(ValueError, match=f"'{target}' has .* values in the records"):
        model.fit(there())
    halves = np.where(workers()["wage"] > 15.0, 60.0, 0.0)
    assert (
        "neither" not in model.set_params(target={"half": (0, 60)}).fit(there(half=halves)).verdict_
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_target_that_is_not_of_two_classes_is_doubted(seed: int) -> None:
    """As a federation has it that is not here: its records are looked at by nobody."""
    rows = workers()
    setting = Federation(
        population=4000, dropouts=20, colluders=20, epsilon=1.0, delta=1e-5, missing=0
    )
    for target, bounds, is_doubted in (("wage", WAGE, True), ("male", (0, 1), False)):
        model = LogisticRegression(features={"age": AGE}, target={target: bounds})
        records = np.column_stack([rows["age"], rows[target]])
        generator = np.random.default_rng(seed)
        found: Any = run(learner_for(model.to_task()), records, setting, generator).posterior
        said = f"many values of {target} are neither"
        assert (said in str(found.verdict)) == is_doubted


def judged(model: Any, epsilon: float, seed: int = 1, **columns: np.ndarray) -> Any:
    """Return the posterior of a federation that is not here: nobody looks at its records."""
    records = {**workers(len(next(iter(columns.values())))), **columns}
    task = model.to_task()
    setting = Federation(
        population=len(records["age"]),
        dropouts=0,
        colluders=0,
        epsilon=epsilon,
        delta=1e-5,
        missing=0,
    )
    rows = np.column_stack([records[name] for name in task.column_names])
    return run(learner_for(task), rows, setting, np.random.default_rng(seed)).posterior


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_a_column_that_bounds_of_0_and_1_cut_everywhere_is_said_to_hardly_vary(
    epsilon: float, seed: int
) -> None:
    fat = np.random.default_rng(4).uniform(5.0, 36.0, 800)
    said = "fat: nearly all values are at or beyond its bound 1: it hardly varies, or is not coded"
    for kind, given in (
        (LinearRegression, {"features": {"age": AGE}, "target": {"fat": (0, 1)}}),
        (LinearRegression, {"features": {"age": AGE, "fat": (0, 1)}, "target": {"wage": WAGE}}),
        (LogisticRegression, {"features": {"age": AGE, "fat": (0, 1)}, "target": {"male": (0, 1)}}),
    ):
        found = judged(kind(**given), epsilon, seed, fat=fat)
        assert found.verdict.kind == "doubtful"
        assert said in str(found.verdict)
    found = judged(Moments(columns={"age": AGE, "fat": (0, 1)}), epsilon, seed, fat=fat)
    assert said in str(found.caution)


@pytest.mark.parametrize("seed", range(3))
def test_flags_that_are_rare_or_common_are_not_doubted_for_their_bounds(seed: int) -> None:
    for share in (0.02, 0.5, 0.97):
        flag = (np.random.default_rng(5).random(4000) < share) * 1.0
        model = LinearRegression(features={"age": AGE, "flag": (0, 1)}, target={"wage": WAGE})
        assert "bound" not in str(judged(model, 3.0, seed, flag=flag).verdict)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [LinearRegression, LogisticRegression])
def test_the_more_values_bounds_cut_the_surer_they_are_doubted(kind: Any, seed: int) -> None:
    years = np.random.default_rng(6).normal(51.0, 10.5, 418).clip(26.0, 79.0)
    target = {"male": (0, 1)} if kind is LogisticRegression else {"wage": WAGE}
    for bound in (42.0, 40.0, 38.0, 35.0, 30.0):
        model = kind(features={"years": (20, bound)}, target=target)
        assert f"at or beyond its bound {bound:g}" in str(
            judged(model, 10.0, seed, years=years).verdict
        )


@pytest.mark.parametrize("seed", range(3))
def test_counts_that_crowd_at_their_bound_are_doubted(seed: int) -> None:
    days = np.random.default_rng(7).negative_binomial(1.5, 0.14, 1500) * 1.0
    for bound, is_doubted in ((120.0, False), (10.0, True)):
        model = PoissonRegression(features={"age": AGE}, target={"days": (0, bound)})
        said = str(judged(model, 10.0, seed, days=days).verdict)
        assert ("days crowd at their bounds" in said) == is_doubted


@pytest.mark.parametrize("seed", range(2))
def test_follow_up_that_ends_at_the_last_time_is_not_doubted(seed: int) -> None:
    generator = np.random.default_rng(8)
    until = generator.exponential(100.0, 2000)
    model = PiecewiseExponentialRegression(
        features={"age": AGE}, time={"weeks": (0, 52)}, event="back", intervals=2
    )
    for last in (52.0, 200.0):
        weeks, back = np.minimum(until, last), (until <= last) * 1.0
        assert "weeks" not in str(judged(model, 10.0, seed, weeks=weeks, back=back).verdict)
        there = SimulatedFederation(
            {**workers(2000), "weeks": weeks, "back": back},
            epsilon=10.0,
            delta=1e-5,
            dropouts=0,
            colluders=0,
            seed=seed,
        )
        fitted = model.fit(there)
        assert "weeks" not in fitted.verdict_
        beyond = dict(fitted.summary().facts).get("Beyond bounds", "")
        assert ("values of weeks" in beyond and "are censored there" in beyond) == (last > 52.0)


def test_values_at_a_bound_are_not_said_to_want_narrower_ones() -> None:
    years = np.random.default_rng(6).normal(51.0, 10.5, 418).clip(26.0, 79.0)
    for bounds in ((20, 40), (240, 1080)):
        model = LinearRegressionInBounds(features={"years": bounds}, target={"wage": WAGE})
        caution = str(judged(model, 10.0, years=years).caution)
        assert "TOO WIDE for years" not in caution
        assert "VALUES OF years ARE AT OR BEYOND A BOUND" in caution


@pytest.mark.parametrize("seed", range(5))
def test_of_five_records_nothing_is_said_of_where_they_lie(seed: int) -> None:
    model = LinearRegression(features={"years": (20, 90)}, target={"wage": WAGE})
    years = np.array([58.8, 56.4, 70.1, 54.7, 38.1])
    assert "bound" not in str(judged(model, 10.0, seed, years=years).verdict)


def test_weights_that_are_all_0_are_refused_and_doubted_where_nobody_may_look() -> None:
    for kind, target in (
        (LinearRegression, {"wage": WAGE}),
        (LogisticRegression, {"male": (0, 1)}),
    ):
        model = kind(features={"age": AGE}, target=target, weights={"w": (0, 4)})
        with pytest.raises(ValueError, match="the weight 'w' is 0 in all records"):
            model.fit(there(w=np.zeros(4000)))
        for weights, is_doubted in ((0.0, True), (1.0, False)):
            found = judged(model, 10.0, w=np.full(4000, weights))
            assert ("the weights w are 0, or far below" in str(found.verdict)) == is_doubted
            assert "hardly varies" not in str(found.verdict)


def wordings(model: Any, count: int = 6, **columns: np.ndarray) -> list[str]:
    return [model.fit(there(seed, 1.0, **columns)).verdict_ for seed in range(count)]


def test_what_more_clients_do_not_tell_apart_is_to_be_dropped() -> None:
    rows = workers()
    said = wordings(
        LinearRegression(
            features={"age": AGE, "twice": (32, 190), "school": SCHOOL}, target={"wage": WAGE}
        ),
        twice=2.0 * rows["age"],
    )
    decided = [each for each in said if each.startswith("prior")]
    assert len(decided) >= 3
    assert all(each.endswith(": drop one of age, twice") for each in decided)
    said = wordings(
        LinearRegression(features={"age": AGE, "same": (0, 5)}, target={"wage": WAGE}),
        same=np.full(len(rows["age"]), 2.0),
    )
    decided = [each for each in said if each.startswith("prior")]
    assert len(decided) >= 3
    assert all("decides same: drop what hardly varies, or" in each for each in decided)


def test_splines_that_the_prior_decides_want_fewer_knots() -> None:
    apart = Tangled(collinear=("spline(age)[4]", "spline(age)[5]"))
    assert apart.advice(["spline(age)[5]"]) == (
        "fewer knots, or drop one of spline(age)[4], spline(age)[5]"
    )
    assert Tangled().advice(["spline(age)[5]"]).startswith("fewer knots, or more clients")
    assert Tangled().advice(["age"]) == "take more clients, or a larger epsilon"


@pytest.mark.parametrize("kind", [LinearRegression, LogisticRegression])
def test_levels_that_hardly_a_record_has_are_said_to_leave_few_records(kind: Any) -> None:
    target = {"male": (0, 1)} if kind is LogisticRegression else {"wage": WAGE}
    spelt = np.where(workers()["sex"] == 2.0, "nurse", "driver")
    job = np.where(np.arange(len(spelt)) % 100, None, spelt)
    model = kind(features={"job": ("nurse", "driver"), "age": AGE}, target=target)
    for said in wordings(model, 3, job=job):
        assert said.startswith("doubtful: only about ")
        assert "of 4,000 clients have a complete record: are values missing" in said


def test_a_clear_slope_beside_one_that_nothing_tells_of_is_not_said_to_be_outweighed() -> None:
    generator = np.random.default_rng(2)
    rows = workers(6000)
    rare = (generator.random(6000) < 0.004).astype(float)
    ill = (generator.random(6000) < 1.0 / (1.0 + np.exp(-0.25 * (rows["school"] - 13.0)))) * 1.0
    model = LogisticRegression(features={"school": SCHOOL, "rare": (0, 1)}, target={"ill": (0, 1)})
    for seed in range(6):
        frame = {**rows, "rare": rare, "ill": ill}
        found = model.fit(
            SimulatedFederation(
                frame, epsilon=2.0, delta=1e-5, dropouts=20, colluders=20, seed=seed
            )
        )
        assert abs(found.posterior_.mean[1]) > 4.0 * found.posterior_.sd[1]
        assert "outweighs" not in found.verdict_
