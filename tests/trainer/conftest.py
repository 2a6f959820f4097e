"""One trainer of the example consortium, on either database, with the other services played."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shoal_trainer.assembly import Service, assemble
from tests.world.around_trainer import CONSORTIUM, Federation
from tests.world.clock import HandMovedClock
from tests.world.lives import Life
from tests.world.parties import book, party

Assemble = Callable[..., Service]


@pytest.fixture
def clock() -> HandMovedClock:
    return HandMovedClock()


@pytest.fixture
def federation() -> Federation:
    return Federation()


@pytest.fixture
async def assembled(
    database_url: str, tmp_path: Path, clock: HandMovedClock, federation: Federation
) -> AsyncIterator[Assemble]:
    """Assembles trainers over one database: a second one is what comes back after a crash."""
    services: list[Service] = []

    def once_more(**more: Any) -> Service:
        for old in services:
            old.resources.storage._engine.dispose()  # a process's connections end with it
        services.append(
            assemble(
                party=party("trainer", CONSORTIUM),
                book=book(tmp_path, CONSORTIUM),
                data_directory=tmp_path,
                database_url=database_url,
                clock=clock,
                transport=federation.wire.of(Life("trainer")),
                **more,
            )
        )
        return services[-1]

    yield once_more
    for service in services:
        await service.close()


@pytest.fixture
def trainer(assembled: Assemble) -> Service:
    return assembled()
