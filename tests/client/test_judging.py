"""A round that takes long to judge, as the price of hidden participation may, holds up nothing."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from shoal_client import answering
from shoal_client.admission import check_round
from shoal_client.holder import DataHolder
from shoal_protocol.errors import RefusedSpec
from tests.client.world import World

CLIENTS = 12


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, CLIENTS)


class Slow:
    """A judgement of one job's rounds that lasts until it is let go."""

    def __init__(self, job: str) -> None:
        self.job, self.may_end = job, threading.Event()
        self.began = 0
        self.error: Exception | None = None

    def __call__(self, signed: Any, **terms: Any) -> None:
        assert threading.current_thread() is not threading.main_thread()
        if signed.body.job == self.job:
            self.began += 1
            self.may_end.wait(60)
            if self.error is not None:
                raise self.error
        check_round(signed, **terms)


async def step_until(holder: DataHolder, holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await holder.step()
            await asyncio.sleep(0.01)


async def test_other_jobs_rounds_are_answered_while_one_is_judged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    wake = asyncio.Event()
    holder = world.holder(wake=wake)
    first, second = world.submit(), world.submit()
    slow = Slow(first.digest)
    monkeypatch.setattr(answering, "check_round", slow)
    world.announce(first)
    world.announce(second, mu=0.1)
    await step_until(holder, lambda: slow.began and all(node.held for node in world.nodes))
    assert [sorted(node.held) for node in world.nodes] == [list(range(CLIENTS))] * 3
    rounds = {each.job: each.rounds for each in (await holder.status()).jobs}
    assert len(rounds[second.digest]) == 1
    assert rounds[first.digest] == ()
    wake.clear()
    slow.may_end.set()
    async with asyncio.timeout(60):
        await wake.wait()  # there is a step to take again
    for node in world.nodes:
        node.held.clear()
    await step_until(holder, lambda: all(node.held for node in world.nodes))
    assert slow.began == 1
    await holder.close()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_a_round_that_is_refused_late_ends_its_job_as_any_refusal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = world.holder(wake=asyncio.Event())
    job = world.submit()
    slow = Slow(job.digest)
    slow.error = RefusedSpec("the price is wrong")
    monkeypatch.setattr(answering, "check_round", slow)
    world.announce(job)
    await step_until(holder, lambda: slow.began)
    slow.may_end.set()
    async with asyncio.timeout(60):
        while not (await holder.status()).jobs[0].ended:
            await holder.step()
            await asyncio.sleep(0.01)
    assert (await holder.status()).jobs[0].ended == "refused: the price is wrong"
    await holder.close()


async def test_a_data_holder_that_is_closed_leaves_no_judgement_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = world.holder(wake=asyncio.Event())
    job = world.submit()
    slow = Slow(job.digest)
    monkeypatch.setattr(answering, "check_round", slow)
    world.announce(job)
    await step_until(holder, lambda: slow.began)
    slow.may_end.set()
    await holder.close()
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
