"""A federation in memory: the same jobs as a real one's, without its privacy."""

from typing import Any

import numpy as np
import pytest

from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.linear_regression import LinearRegressionTask
from shoal_studies.simulation import SimulatedFederation

TASK = LinearRegressionTask(
    features=(ColumnBounds(name="age", lower=18, upper=90),),
    target=ColumnBounds(name="pressure", lower=80, upper=180),
    method="plain",
)


def records(clients: int = 300) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    age = generator.uniform(18, 90, clients)
    return {"pressure": 90 + 0.5 * age + generator.normal(0, 4, clients), "age": age}


def federation(rows: Any = None, **changes: Any) -> SimulatedFederation:
    arguments: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "dropouts": 10,
        "colluders": 10,
        "seed": 1,
    }
    return SimulatedFederation(records() if rows is None else rows, **(arguments | changes))


def test_the_same_seed_and_calls_give_the_same_posteriors_and_no_two_calls_do() -> None:
    first, second = federation(), federation()
    assert [first.learn(TASK).posterior for _ in range(2)] == [
        second.learn(TASK).posterior for _ in range(2)
    ]
    assert first.learn(TASK).posterior != first.learn(TASK).posterior
    assert federation(seed=2).learn(TASK).posterior != federation().learn(TASK).posterior


@pytest.mark.parametrize(
    ("rows", "changes", "said"),
    [
        ({"age": [1.0, 2.0], "pressure": [1.0]}, {}, "one length"),
        ({"age": [np.inf] * 50, "pressure": [1.0] * 50}, {}, "finite"),
        ({"age": [20.0] * 21, "pressure": [90.0] * 21}, {}, "more clients"),
        (None, {"missing": 11}, "missing"),
        (None, {"epsilon": 0.0}, "epsilon"),
        (None, {"delta": 1.0}, "delta|probability"),
    ],
)
def test_what_cannot_be_simulated_is_refused(rows: Any, changes: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        federation(rows, **changes)


def test_a_delta_that_protects_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="delta must be below 1 / 300, one over the clients"):
        federation(delta=0.01)
    assert federation(delta=0.003).learn(TASK).posterior.records
