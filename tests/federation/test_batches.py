"""Jobs of many rounds, each of which asks a batch of the clients."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.simulated.batches import BATCH, CLIENTS, CONSORTIUM, HOLDERS, MOST, ROUNDS, TASK
from tests.simulated.trust import SITES, Trust, make_trust
from tests.simulation import Federation


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("trust"), **CONSORTIUM)


@pytest.fixture
async def federation(trust: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    async with Federation(trust, tmp_path, holders=HOLDERS) as running:
        yield running


async def test_every_client_pays_for_its_own_rounds(federation: Federation) -> None:
    report = await federation.learn(task=TASK)
    assert len(report.rounds) == ROUNDS
    assert set(report.cohort_sizes) == {BATCH}
    assert (report.population_size, report.lost_rounds) == (CLIENTS, ())
    assert (report.participations.least, report.participations.most) == (MOST, MOST)
    for site in SITES:
        spent = await federation.holder(site).spent()
        assert {len(costs) for costs in spent.values()} == {MOST}
