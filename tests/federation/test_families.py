"""Exponential families over all services: asked, summed, noised, learned and certified."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.cells import BernoulliTask, CategoricalTask
from shoal_studies.catalogue.normals import NormalTask
from shoal_studies.catalogue.single_numbers import NormalMeanTask, PoissonTask
from shoal_studies.catalogue.study import OneRoundStudy
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, Trust, make_trust

QUERIES = ("counts", "first_moments", "second_moment_matrix")
AGE = ColumnBounds(name="age", lower=0.0, upper=120.0)
PRESSURE = ColumnBounds(name="pressure", lower=60.0, upper=200.0)
TASKS: tuple[OneRoundStudy, ...] = (
    BernoulliTask(column="age", success=30.0),
    CategoricalTask(column="age", levels=(30.0, 67.0)),
    PoissonTask(column="age", upper=120),
    NormalMeanTask(column=PRESSURE, sd=10.0),
    NormalTask(variables=(PRESSURE,)),
    NormalTask(variables=(AGE, PRESSURE)),
)


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    """A consortium whose cap has room for all of them."""
    directory = tmp_path_factory.mktemp("families")
    return make_trust(directory, queries=QUERIES, maximum_epsilon=20.0)


@pytest.fixture
async def federation(trust: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    policy = HOLDER_POLICY.model_copy(
        update={
            "queries": QUERIES,
            "maximum_epsilon": 20.0,
        }
    )
    async with Federation(
        trust, tmp_path, holders={site: {"policy": policy} for site in SITES}
    ) as running:
        yield running


async def test_every_family_is_learned_in_one_round(federation: Federation) -> None:
    for task in TASKS:
        report = await federation.learn(task=task)
        posterior = report.posterior
        assert posterior.name == task.name
        assert posterior.columns == tuple(column.name for column in task.columns)
        assert len(report.rounds) == 1
        assert report.cohort_sizes == (sum(SITES.values()),)
        assert 0 < posterior.records <= sum(SITES.values())  # seen through noise
        assert np.all(posterior.sd > 0.0)
        assert posterior.interval(0.9).shape == (len(posterior.names), 2)
