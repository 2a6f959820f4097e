"""Services that take requests and do not answer: they hold up nobody but who needs them."""

import asyncio

import httpx
import pytest

from shoal_protocol.keeping import HEADS_PATH
from shoal_trainer import running as module
from shoal_trainer.assembly import Service
from tests.trainer.test_jobs import joined, state
from tests.world.around_trainer import Federation, job
from tests.world.clock import HandMovedClock

FIRST, OTHER = (job(nonce=nonce * 16, maximum_population=14) for nonce in ("5e", "a1"))


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("service", ["compute-1", "aggregator"])
async def test_a_job_that_waits_for_a_frozen_service_does_not_hold_up_the_others(
    trainer: Service, federation: Federation, service: str
) -> None:
    answering = asyncio.Event()
    federation.freeze(service, answering)
    await joined(trainer, FIRST)
    log, asked = federation.wire.log, {"/v1/jobs", "/v1/rounds"}  # a node takes the request first
    while not any(each.receiver == service and each.path in asked for each in log):
        await trainer.step()
    federation.wire.scripts.clear()
    await joined(trainer, OTHER)
    while (await state(trainer, OTHER))["phase"] != "finished":  # beside steps, on a slow machine
        await trainer.step()
    assert (await state(trainer, FIRST))["phase"] == "running"
    answering.set()
    while (await state(trainer, FIRST))["phase"] != "finished":
        await trainer.step()


async def test_a_keeper_that_does_not_answer_any_more_holds_up_no_step(
    trainer: Service, federation: Federation, clock: HandMovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = federation.wire.cut("trainer", "compute-1", f"{HEADS_PATH}$")
    await trainer.step()  # all were asked once
    federation.wire.rules.remove(cut)
    asked = asyncio.Event()

    async def wait(request: httpx.Request) -> None:
        asked.set()
        await asyncio.Event().wait()

    federation.wire.scripts["compute-1"] = wait
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 600.0)
    clock.move(6.0)
    async with asyncio.timeout(60.0):
        await trainer.step()
        await asked.wait()
