"""A crowd in memory, in the units of its data: learns, and starts warm."""

import re
from pathlib import Path

import numpy as np
import pytest

from shoal_learning.crowds.simulation import SimulatedCrowd
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.queries.columns import ColumnBounds

CLIENTS = 20_000


def patients(seed: int = 1) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    age = generator.uniform(20.0, 80.0, CLIENTS)
    dose = generator.uniform(0.0, 5.0, CLIENTS)
    pressure = 110.0 + 0.5 * age - 4.0 * dose + 5.0 * generator.standard_normal(CLIENTS)
    return {"age": age, "dose": dose, "pressure": pressure, "unused": age}


def task(**changes: object) -> CrowdTask:
    settings = {"clip": 0.02, "epsilon": 16.0, "learning_rate": 0.04, "instances": 4, **changes}
    return CrowdTask(
        family="linear",
        features=(
            ColumnBounds(name="age", lower=20.0, upper=80.0),
            ColumnBounds(name="dose", lower=0.0, upper=5.0),
        ),
        target=ColumnBounds(name="pressure", lower=80.0, upper=180.0),
        **settings,  # type: ignore[arg-type]
    )


def test_a_crowd_learns_coefficients_in_the_units_of_its_data():
    # Over 40 seeds errors scatter by .05 and .55, about -.002 and .14: fewer than 1 of 10,000 seeds
    # would pass these limits by chance. The seed is fixed.
    model = SimulatedCrowd(patients(), seed=1).learn(task())
    age, dose = model.coefficients[1:]
    assert abs(age - 0.5) < 0.23
    assert abs(dose + 4.0) < 2.7
    [predicted] = model.predict(np.array([[50.0, 2.5]]))
    assert predicted == pytest.approx(125.0, abs=6.0)
    assert model.contributions == CLIENTS


def test_the_same_seed_and_calls_give_the_same_models_and_each_call_new_noise():
    few = {name: each[:300] for name, each in patients().items()}
    one, two = (SimulatedCrowd(few, seed=2) for _ in range(2))
    first = one.learn(task())
    assert first == two.learn(task()) and first.contributions == 300
    assert first != one.learn(task())


def test_a_warm_start_saves_contributions():
    # 500 contributions leave most of the start's error; in 20 seeds warm was at most .44 of cold.
    crowd = SimulatedCrowd(patients(), seed=3)
    model = crowd.learn(task())
    few = SimulatedCrowd({name: each[:500] for name, each in patients(2).items()}, seed=3)
    cold, warm = few.learn(task()), few.learn(task(start=model.as_start()))
    truth = np.array([0.5, -4.0])
    scale = np.array([60.0, 5.0])  # what a whole range of the feature makes
    cold_error, warm_error = (
        np.abs((each.coefficients[1:] - truth) * scale).max() for each in (cold, warm)
    )
    assert warm_error < 0.5 * cold_error


def test_answers_that_overwrite_each_other_teach_little():
    # 2,000 answers of which 64 always come from one draw's time: 31 that count. In 20 seeds the
    # error without load was at most .13 of that with it.
    few = {name: each[:2000] for name, each in patients().items()}
    crowd, single = SimulatedCrowd(few, seed=7), task(instances=1, clip=0.01, learning_rate=0.02)
    errors = []
    for open_sessions in (0, 63):
        model = crowd.learn(single, open_sessions=open_sessions)
        errors.append(abs(model.coefficients[1] - 0.5) * 60.0)
        errors.append(abs(model.coefficients[2] + 4.0) * 5.0)
    assert max(errors[:2]) < 0.3 * max(errors[2:])


def test_clients_may_contribute_several_times():
    few = {name: values[:50] for name, values in patients().items()}
    model = SimulatedCrowd(few, seed=4).learn(task(), contributions_per_client=3)
    assert model.contributions == 150


def test_what_the_page_shows_runs(capsys: pytest.CaptureFixture[str]):
    page = (Path(__file__).parents[3] / "docs/draw-and-discard.md").read_text()
    [block] = re.findall(r"```python\n(from shoal_learning.*?)```", page, flags=re.DOTALL)
    few = {name: each[:3000] for name, each in patients().items()}
    names = {"records": few, "task": task()}
    exec(block, names)
    said = capsys.readouterr().out
    assert "Linear model of pressure, from a crowd" in said
    assert len(names["start"]) == 3


def test_records_that_cannot_be_learned_from_are_refused():
    with pytest.raises(ValueError, match="one length"):
        SimulatedCrowd({"a": [1.0, 2.0], "b": [1.0]}, seed=1)
    with pytest.raises(ValueError, match="finite"):
        SimulatedCrowd({"a": [np.nan]}, seed=1)
    with pytest.raises(ValueError, match="there must be records"):
        SimulatedCrowd({"a": []}, seed=1)
    crowd = SimulatedCrowd({"age": [30.0], "dose": [1.0]}, seed=1)
    with pytest.raises(ValueError, match="'pressure'"):
        crowd.learn(task())
    assert "NO PRIVACY" in repr(crowd) and len(crowd) == 1
