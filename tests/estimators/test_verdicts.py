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
)
from shoal_studies.learners import learner_for
from shoal_studies.simulation import Federation, run

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
