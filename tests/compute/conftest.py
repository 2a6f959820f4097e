"""A federation that is closed after its test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.world.around_node import Federation


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[Federation]:
    made = Federation(tmp_path)
    yield made
    await made.close()
