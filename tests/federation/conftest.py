"""One consortium's keys for all tests here, and simulated federations that begin with them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.simulation.federation import Federation
from tests.simulation.trust import Trust, make_trust


@pytest.fixture(scope="session")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("trust"))


@pytest.fixture
async def federation(trust: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    async with Federation(trust, tmp_path) as running:
        yield running
