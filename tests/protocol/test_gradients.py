"""Gradient sums and the tasks that ask for them: right derivatives, clear refusals."""

import math

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from shoal_protocol.queries import Column, GradientSum, Query
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.models import InstalledModel, LogisticRegressionModel
from shoal_protocol.rounds.batches import participations
from shoal_protocol.wire.errors import RefusedSpec
from shoal_studies.catalogue.variational import LogisticRegressionTask, NumpyroTask

AGE = ColumnBounds(name="age", lower=20.0, upper=80.0)
SMOKER = ColumnBounds(name="smoker", lower=1.0, upper=2.0)
VISITS = ColumnBounds(name="visits", lower=0.0, upper=12.0)
ILL = LogisticRegressionTask(features=(AGE,), target=SMOKER, rounds=20, batch=10)
OWN = NumpyroTask(
    entry_point="robust",
    digest="ab" * 32,
    unconstrained=3,
    columns=(AGE, SMOKER),
    rounds=5,
    batch=4,
)
TASKS = [ILL, OWN]


def slope(log_likelihood, point, step=1e-6):
    """Return the gradient by central differences."""
    return np.array(
        [
            (log_likelihood(point + move) - log_likelihood(point - move)) / (2.0 * step)
            for move in step * np.eye(len(point))
        ]
    )


@pytest.mark.parametrize("intercept", [0.0, 0.3])
@pytest.mark.parametrize("outcome", [1.0, -1.0])
def test_the_gradient_of_logistic_regression_is_the_slope_of_its_log_likelihood(outcome, intercept):
    model = LogisticRegressionModel(intercept=intercept)
    features = np.array([0.4, -0.9])
    row = np.append(intercept, features) if intercept else features
    point = np.linspace(-1.0, 2.0, len(row))
    expected = slope(lambda theta: -math.log1p(math.exp(-outcome * (row @ theta))), point)
    [found] = model.gradients(point, np.array([[*features, outcome]]))
    assert found == pytest.approx(expected, abs=1e-8)


def test_several_records_are_clipped_one_by_one_and_added():
    query = ILL.gradient_query([0.1, -0.2]).model_copy(update={"records_per_client": 3})
    records = np.array([[20.0, 1.0], [70.0, 2.0], [44.0, 1.0]])
    alone = [query.encode(records[i : i + 1]) for i in range(3)]
    assert np.array_equal(query.encode(records), sum(alone))


def test_a_model_that_is_not_built_in_is_never_made_up():
    query = OWN.gradient_query([0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match="not at hand"):
        query.encode(np.array([[50.0, 1.0]]))
    with pytest.raises(ValueError, match="shape"):
        query.encode(np.array([[50.0, 1.0]]), lambda point, rows: np.zeros((1, 2)))


@pytest.mark.parametrize("normalised", [False, True])
def test_an_installed_model_gets_cut_values_in_the_units_that_its_task_says(normalised):
    task = OWN.model_copy(update={"normalised": normalised})
    seen = []

    def gradients(point, rows):
        seen.append(rows.tolist())
        return np.zeros((1, 3))

    task.gradient_query([0.0] * 3).encode(np.array([[90.0, 1.5]]), gradients)
    assert seen == [[[1.0, 0.0]]] if normalised else [[[80.0, 1.5]]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"point": (0.0,)}, "one coordinate"),
        ({"point": (0.0, math.nan)}, "finite"),
        ({"point": (0.0, 1.1e6)}, "1000000"),
        ({"clip": 0.0}, "greater than or equal"),
        ({"clip": math.inf}, "finite"),
        ({"clip": 1e-7}, "between 1 and"),
        ({"clip": 2000.0}, "between 1 and"),
        ({"columns": (Column(name="a", centre=0.0, scale=1.0),) * 2}, "same name"),
        ({"grid_bits": 31}, "equal to 30"),
        ({"records_per_client": 0}, "equal to 1"),
        ({"model": {"name": "anything"}}, "expected tags"),
        ({"code": "import os"}, "Extra inputs"),
    ],
)
def test_a_gradient_sum_outside_the_catalogue_is_refused(change, reason):
    fields = ILL.gradient_query([0.0, 0.0]).model_dump() | change
    with pytest.raises(ValidationError, match=reason):
        TypeAdapter(Query).validate_python(fields)


@pytest.mark.parametrize(
    ("task", "change", "reason"),
    [
        (ILL, {"features": (AGE, AGE)}, "same name"),
        (ILL, {"features": (SMOKER,)}, "must not be one of the features"),
        (ILL, {"features": (AGE.model_copy(update={"name": "intercept"}),)}, "constant term"),
        (ILL, {"intercept": 0.001}, "0.01"),
        (ILL, {"rounds": 0}, "greater than"),
        (ILL, {"batch": 1}, "greater than"),
        (ILL, {"clip": 5000.0}, "grid_bits"),
        (OWN, {"columns": (AGE, AGE)}, "same name"),
        (OWN, {"entry_point": "../robust"}, "pattern"),
        (OWN, {"entry_point": "robust:model"}, "pattern"),
        (OWN, {"digest": "ab"}, "64|pattern|digest"),
        (OWN, {"unconstrained": 0}, "greater than"),
    ],
)
def test_a_task_that_cannot_be_is_refused_with_the_reason(task, change, reason):
    with pytest.raises(ValidationError, match=reason):
        type(task).model_validate(task.model_dump() | change)


@pytest.mark.parametrize(
    ("population", "rounds"), [(10, 20), (20, 10), (30, 7), (1000, 1), (5, 20)]
)
def test_a_client_is_in_as_many_rounds_as_its_share_of_the_batches_rounded_up(population, rounds):
    assert participations(ILL.rounds, ILL.batch, population) == rounds
    assert participations(ILL.rounds, None, population) == 20


def ask(query, task, number=0):
    task.terms(least=20, most=40).check(query, number=number)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_round_may_take_gradients_at_any_point(task):
    size = task.model.dimension(len(task.columns))
    for number, place in enumerate((0.0, -3.5, 1e6)):
        ask(task.gradient_query([place] * size), task, number)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"clip": 2.0}, "clip"),
        ({"grid_bits": 12}, "grid"),
        ({"records_per_client": 2}, "records_per_client"),
        ({"model": LogisticRegressionModel(intercept=1.0)}, "model"),
        (
            {
                "model": InstalledModel(
                    entry_point="x", digest="0" * 64, unconstrained=2, normalised=False
                )
            },
            "model",
        ),
        ({"columns": (AGE.column(), SMOKER.column().model_copy(update={"scale": 9.0}))}, "scales"),
        ({"columns": (AGE.column(), VISITS.column())}, "columns"),
    ],
)
def test_a_round_that_changes_what_bounds_a_gradient_is_refused(change, reason):
    honest = ILL.gradient_query([0.0, 0.0])
    with pytest.raises(RefusedSpec, match=reason):
        ask(GradientSum.model_validate(honest.model_dump() | change), ILL)
