"""Gradients at a data holder: of models that it allows and has, and of nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal_holder.contribution import encoded_together
from shoal_holder.policy import Policy
from shoal_kit import installed_models
from shoal_kit.installed_models import digest_of
from shoal_protocol.queries import GradientSum
from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.variational import (
    LogisticRegressionTask,
    NumpyroTask,
    VariationalStudy,
)
from tests.world.around_holder import COLUMNS, POLICY, World
from tests.world.installed_models import install_examples
from tests.world.people import rows_at

CLIENTS = 12
AGE = ColumnBounds(name="age", lower=0.0, upper=120.0)
PRESSURE = ColumnBounds(name="pressure", lower=0.0, upper=200.0)
LOGISTIC = LogisticRegressionTask(features=(AGE,), target=PRESSURE, rounds=1, batch=None)


@pytest.fixture
def robust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NumpyroTask:
    """The task of an example's model, which is installed."""
    install_examples(tmp_path / "site", monkeypatch)
    return NumpyroTask(
        entry_point="robust_regression",
        digest=digest_of("robust_regression"),
        unconstrained=3,
        columns=(AGE, PRESSURE),
        normalised=True,
        rounds=1,
        batch=None,
    )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, CLIENTS, queries=("gradient_sum",))


def policy(**changes: Any) -> Policy:
    return Policy.model_validate(
        POLICY.model_dump()
        | {
            "queries": ("gradient_sum",),
        }
        | changes
    )


async def answers(world: World, task: VariationalStudy, **rules: Any) -> NDArray[np.int64]:
    """Return the sum of what a data holder sends for a round of the task, without noise."""
    holder = world.holder(policy=policy(**rules))
    request = world.submit(task=task)
    await holder.step()
    query = asked(task)
    world.announce(request, query=query)
    await holder.step()
    await holder.close()
    return world.total(dimension=query.dimension)


def asked(task: VariationalStudy) -> GradientSum:
    return task.gradient_query(np.linspace(-0.4, 0.3, task.model.dimension(2)).tolist())


async def test_a_holder_sends_the_clipped_gradients_of_a_model_that_is_built_in(
    world: World,
) -> None:
    query = asked(LOGISTIC)
    expected = [query.encode(rows_at(world.records, client, COLUMNS)) for client in range(CLIENTS)]
    assert np.array_equal(await answers(world, LOGISTIC), np.sum(expected, axis=0))


@pytest.mark.slow
async def test_a_holder_sends_the_gradients_of_a_model_that_it_allows_and_has(
    world: World, robust: NumpyroTask
) -> None:
    compiled = installed_models.model_for(robust.model, robust.model_columns)
    query = asked(robust)
    expected = [
        query.encode(rows_at(world.records, client, COLUMNS), compiled.gradients)
        for client in range(CLIENTS)
    ]
    found = await answers(world, robust, models=(robust.model.reference,))
    assert found.any() and np.array_equal(found, np.sum(expected, axis=0))


async def refused(world: World, task: NumpyroTask, **rules: Any) -> str:
    holder = world.holder(policy=policy(**rules))
    request = world.submit(task=task)
    await holder.step()
    status = await holder.status()
    await holder.close()
    assert request.digest not in world.trainer.joined
    return status.refused[request.digest]


async def test_no_model_is_allowed_unless_the_owner_lists_it_with_its_digest(
    world: World, robust: NumpyroTask
) -> None:
    said = await refused(world, robust)
    assert "see `models` in its policy" in said
    assert robust.digest not in said and robust.entry_point not in said


async def test_a_model_of_another_digest_is_not_the_one_that_was_allowed(
    world: World, robust: NumpyroTask
) -> None:
    other = robust.model_copy(update={"digest": "0" * 64})
    assert "see `models`" in await refused(world, other, models=(robust.model.reference,))


@pytest.mark.slow
def test_one_records_gradient_does_not_depend_on_another_clients(
    world: World, robust: NumpyroTask
) -> None:
    query = asked(robust)
    records = np.stack([rows_at(world.records, client, COLUMNS) for client in (3, 4)])

    def contributed(present: list[list[bool]]) -> list[int]:
        return encoded_together(query, records, np.array(present, np.bool_)).tolist()

    both, first, second = (contributed([[a], [b]]) for a, b in ((1, 1), (1, 0), (0, 1)))
    assert np.add(first, second).tolist() == both
    assert any(first)
