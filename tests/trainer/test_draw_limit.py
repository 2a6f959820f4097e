"""Anybody may draw: however many do, submissions find room, and honest draws lose only time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from shoal_protocol.wire.encoding import canonical_json
from shoal_trainer.assembly import Service
from shoal_trainer.crowds import drawing
from shoal_trainer.crowds.drawing import DrawLimit
from tests.world.around_trainer_crowds import CROWDS, Asker, crowd, nonce, trainer_of
from tests.world.clock import HandMovedClock
from tests.world.parties import problem_code

REQUEST = crowd()
JOB = REQUEST.digest
DRAWS = f"{CROWDS}/{JOB}/draws"
PLACES = 2


@pytest.fixture
async def trainer(tmp_path: Path, clock: HandMovedClock) -> AsyncIterator[Service]:
    service = trainer_of(tmp_path, None, clock, draws_at_once=PLACES)
    yield service
    await service.close()


@pytest.fixture
async def asker(trainer: Service) -> Asker:
    asker = Asker(trainer.app)
    assert (await asker.open(REQUEST)).status_code == 201
    return asker


def limit_of(trainer: Service) -> DrawLimit:
    return trainer.crowds.draws.limit


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait for a place."""
    monkeypatch.setattr(drawing, "LONGEST_WAIT_SECONDS", 0.0)


async def test_a_draw_that_waited_too_long_is_refused_says_when_to_come_back_and_is_counted(
    asker: Asker, trainer: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch)
    limit = limit_of(trainer)
    async with limit.place(), limit.place():
        refused = await asker.ask("POST", DRAWS, canonical_json({"nonce": nonce(1)}))
    assert (refused.status_code, problem_code(refused)) == (503, "too-many-draws")
    assert refused.headers["Retry-After"] == "5"
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert (await asker.draw(JOB, 1)).body.nonce == nonce(1)  # the same nonce, a while later
    metrics = (await asker.ask("GET", "/metrics")).text
    assert "shoal_trainer_crowd_draw_requests_refused_total 1.0" in metrics
    assert f"shoal_trainer_crowd_draws_total {PLACES + 1}.0" in metrics


@pytest.mark.parametrize("at_once", [1, 3, 7])
async def test_places_are_given_in_turn_never_more_than_there_are_and_all_come_back(
    at_once: int,
) -> None:
    limit = DrawLimit(at_once, CollectorRegistry())
    held, most, order = 0, 0, []

    async def hold(number: int) -> None:
        nonlocal held, most
        async with limit.place():
            order.append(number)
            held += 1
            most = max(most, held)
            await asyncio.sleep(0)
            held -= 1

    waiting = [asyncio.create_task(hold(number)) for number in range(50)]
    await asyncio.sleep(0)
    gone = waiting[7::10]  # who gives up in the line leaves it to the others
    for each in gone:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert most <= at_once
    assert order == sorted(order)
    assert len(order) >= 50 - len(gone)
    async with AsyncExitStack() as stack:
        for _ in range(at_once):
            await stack.enter_async_context(limit.place())
