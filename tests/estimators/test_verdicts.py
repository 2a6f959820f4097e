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
    LogisticRegression,
    Moments,
    PiecewiseExponentialRegression,
)
from shoal_learning.learners import learner_for
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
