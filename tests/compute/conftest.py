"""A federation that is closed after its test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed
from tests.world.around_node import Federation


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[Federation]:
    made = Federation(tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def spec(federation: Federation) -> Signed[RoundSpec]:
    announced = federation.spec()
    await federation.announce(announced)
    return announced
