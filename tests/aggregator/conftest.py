"""One aggregator of the example consortium, on either database, and what it answers."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal_aggregator.assembly import Service, assemble
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.manifest import Consortium
from tests.world.clock import HandMovedClock
from tests.world.parties import book, party, post, signed_by

Assemble = Callable[[], Service]


@pytest.fixture
def clock() -> HandMovedClock:
    return HandMovedClock()


@pytest.fixture
async def assembled(
    database_url: str, tmp_path: Path, clock: HandMovedClock
) -> AsyncIterator[Assemble]:
    """Assembles aggregators over one database: a second one is what comes back after a crash."""
    services: list[Service] = []

    def once_more() -> Service:
        for old in services:
            old.resources.storage._engine.dispose()  # a process's connections end with it
        services.append(
            assemble(
                party=party("aggregator"),
                book=book(tmp_path),
                data_directory=tmp_path,
                database_url=database_url,
                clock=clock,
            )
        )
        return services[-1]

    yield once_more
    for service in services:
        await service.close()


@pytest.fixture
def aggregator(assembled: Assemble) -> Service:
    return assembled()


@asynccontextmanager
async def told_of(
    spec: RoundSpec,
    consortium: Consortium,
    *,
    database_url: str,
    directory: Path,
    clock: HandMovedClock,
) -> AsyncIterator[Service]:
    """Assemble the aggregator of a consortium, and announce the round to it."""
    service = assemble(
        party=party("aggregator", consortium),
        book=book(directory, consortium),
        data_directory=directory,
        database_url=database_url,
        clock=clock,
    )
    assert await post(service, "/v1/rounds", signed_by("trainer", spec)) == 201
    yield service
    await service.close()
