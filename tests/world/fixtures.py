"""One consortium's keys for all tests of a folder, and played federations that begin with them."""

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog

from tests.world.federation import Federation
from tests.world.trust import Trust, make_trust


@pytest.fixture(scope="session")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("trust"))


@pytest.fixture(scope="session")
def open_trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    """A consortium that allows crowd jobs."""
    return make_trust(tmp_path_factory.mktemp("open"), nodes=2, maximum_local_epsilon=2.0)


@pytest.fixture
async def federation(trust: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    async with Federation(trust, tmp_path) as running:
        yield running


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Show errors only: of the rest, a failing test would print thousands of lines."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.configure(**before)
