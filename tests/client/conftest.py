"""A data holder of twelve clients whose trainer and nodes are played, and its world."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal_agent.data_holder import DataHolder
from tests.world.around_holder import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
async def holder(world: World) -> AsyncIterator[DataHolder]:
    opened = world.holder()
    yield opened
    await opened.close()
