"""What a crowd learned: averages, units, spread, and the error that theory expects."""

import numpy as np
import pytest

from shoal_protocol.crowds.tasks import CrowdTask, design_rows, means
from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.crowds.simulation import CrowdModel
from tests.studies.draw_and_discard.crowds import crowd_task

FAMILIES = ("linear", "logistic", "poisson")
AGE = ColumnBounds(name="age", lower=20.0, upper=80.0)
DOSE = ColumnBounds(name="dose", lower=0.0, upper=5.0)
TARGETS = {
    "linear": ColumnBounds(name="pressure", lower=80.0, upper=200.0),
    "logistic": ColumnBounds(name="ill", lower=0.0, upper=1.0),
    "poisson": ColumnBounds(name="visits", lower=0.0, upper=30.0),
}


def in_units(family: str, *, intercept: bool = True, instances: int = 3) -> CrowdTask:
    return crowd_task(family, instances=instances).model_copy(
        update={"features": (AGE, DOSE), "target": TARGETS[family], "intercept": intercept}
    )


def some_model(task: CrowdTask, seed: int = 1) -> CrowdModel:
    generator = np.random.default_rng(seed)
    weights = generator.normal(0.0, 0.3 * task.grid, (task.instances, task.dimension))
    return CrowdModel.of(task, np.rint(weights).astype(np.int64), 1000)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_coefficients_in_the_datas_units_predict_what_the_weights_do(family: str, intercept: bool):
    task = in_units(family, intercept=intercept)
    model = some_model(task)
    rows = np.random.default_rng(2).uniform([20.0, 0.0], [80.0, 5.0], (40, 2))
    linear = model.coefficients[0] + rows @ model.coefficients[1:]
    expected = linear if family == "linear" else means(task, linear)
    assert model.names == ("(intercept)", "age", "dose")
    assert np.allclose(model.predict(rows), expected)


def test_rows_of_a_design_are_those_that_contributions_use():
    task = in_units("linear")
    records = np.array([[50.0, 2.5, 140.0]])
    rows, targets = design_rows(task, records)
    assert rows.tolist() == [[1.0, 0.0, 0.0]] and targets.tolist() == [0.0]
    model = some_model(task)
    assert model.predict(records[:, :2])[0] == pytest.approx(140.0 + 60.0 * model.averaged[0])
