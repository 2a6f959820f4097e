"""A trainer that keeps a question open at the aggregator, as the process does."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from shoal_service.storage.database import sqlite_url
from shoal_trainer.assembly import Service, assemble
from tests.trainer.test_jobs import running, state
from tests.world.around_trainer import CONSORTIUM, Federation
from tests.world.clock import HandMovedClock
from tests.world.lives import Life
from tests.world.parties import book, party


class PatientFederation(Federation):
    """Its aggregator holds a long poll until the round is decided, as a real one does."""

    def __init__(self) -> None:
        super().__init__()
        self.decision = asyncio.Event()
        self.long_polls = self.results = 0
        self.wire.scripts["aggregator"] = self.hold

    async def hold(self, request: httpx.Request) -> None:
        self.results += request.url.path.endswith("/outcome")
        if "wait" in request.url.params:
            self.long_polls += 1
            await self.decision.wait()
        self.decided = self.decision.is_set()


@pytest.fixture
def patient() -> PatientFederation:
    return PatientFederation()


@pytest.fixture
async def polling(
    tmp_path: Path, clock: HandMovedClock, patient: PatientFederation
) -> AsyncIterator[Service]:
    service = assemble(
        party=party("trainer", CONSORTIUM),
        book=book(tmp_path, CONSORTIUM),
        data_directory=tmp_path,
        database_url=sqlite_url(tmp_path / "service.sqlite"),
        clock=clock,
        transport=patient.wire.of(Life("trainer")),
        long_polls=True,
    )
    yield service
    await service.close()


async def test_a_round_goes_on_as_soon_as_the_aggregator_has_decided(
    polling: Service, clock: HandMovedClock, patient: PatientFederation
) -> None:
    await running(polling, clock)
    async with asyncio.timeout(30):
        while not patient.long_polls:
            await polling.step()
            await asyncio.sleep(0.01)
        await polling.step()  # which does not wait for the answer
        assert patient.long_polls == 1
        patient.decision.set()
        while (await state(polling))["phase"] != "finished":
            await polling.step()
            await asyncio.sleep(0.01)
    assert patient.long_polls == patient.results == 2  # what a long poll brings is not asked again
