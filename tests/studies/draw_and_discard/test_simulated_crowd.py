"""A crowd in memory, in the units of its data: learns, and starts warm."""

import re
from pathlib import Path

import numpy as np
import pytest

from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.crowds.simulation import SimulatedCrowd

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


def test_what_the_page_shows_runs(capsys: pytest.CaptureFixture[str]):
    page = (Path(__file__).parents[3] / "docs/draw-and-discard.md").read_text()
    [block] = re.findall(r"```python\n(from shoal_studies.*?)```", page, flags=re.DOTALL)
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
    assert repr(crowd) == "<SimulatedCrowd of 1 records: NO PRIVACY>"
