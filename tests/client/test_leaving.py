"""What a data holder sets aside for a job has an end: its time, a withdrawal, or leaving it."""

import asyncio
from datetime import timedelta

import httpx
from prometheus_client import CollectorRegistry

from shoal_agent.application import create_agent_application
from tests.world.around_holder import World
from tests.world.clock import HandMovedTimer
from tests.world.spending import costs_of

CLIENTS = 12


async def test_a_round_that_would_outlast_its_job_is_not_answered(world: World) -> None:
    holder = world.holder()
    request = world.submit()
    await holder.step()
    world.clock.now = request.body.ends_by - timedelta(seconds=119)
    world.announce(request)  # it would be given up after 120 seconds
    await holder.step()
    (job,) = (await holder.status()).jobs
    assert job.ended == "refused: the round would outlast the job"
    assert not any(node.held for node in world.nodes)
    await holder.close()


async def test_leaving_while_an_answer_is_made_is_in_time(world: World) -> None:
    """Nothing that was in work when the owner left is sent; the vault hears it when it is made."""
    request = world.submit()
    holder = world.holder()
    await holder.step()
    world.announce(request)
    leaving, loop = asyncio.Event(), asyncio.get_running_loop()
    left: list[asyncio.Task[None]] = []

    class Slow(HandMovedTimer):
        def sleep(self, seconds: float) -> None:
            """Wait until the owner has asked, which is behind what is being made."""

            def leave() -> None:
                left.append(asyncio.create_task(holder.leave(request.digest)))
                loop.call_soon(leaving.set)

            loop.call_soon_threadsafe(leave)
            asyncio.run_coroutine_threadsafe(leaving.wait(), loop).result(60)

    await holder.close()
    holder = world.holder(timer=Slow())
    await holder.step()
    assert await asyncio.gather(*left) == [None]
    assert len(await costs_of(holder)) == CLIENTS
    assert not any(node.held for node in world.nodes)
    assert [job.ended for job in (await holder.status()).jobs] == ["left"]
    await holder.close()


async def test_only_the_owner_may_have_the_agent_leave(world: World) -> None:
    holder = world.holder()
    request = world.submit()
    await holder.step()
    app = create_agent_application(
        holder,
        token="t" * 32,
        registry=CollectorRegistry(),
        vitals=None,
        metrics_for_anybody=False,
    )
    path = f"/v1/jobs/{request.digest}/leave"
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://agent") as http:
        assert (await http.post(path)).status_code == 401
        assert (await holder.status()).jobs[0].ended is None
        owner = {"Authorization": f"Bearer {'t' * 32}"}
        (shown,) = (await http.get("/v1/ledger", headers=owner)).json()["reserved"]
        assert (shown["job"], shown["slots"]) == (request.digest, CLIENTS)
        told = await http.post(path, headers=owner)
        expected = {"job": request.digest, "slots": CLIENTS, "answered_rounds": 0}
        assert (told.status_code, told.json()) == (200, expected)
        assert (await http.get("/v1/ledger", headers=owner)).json()["reserved"] == []
        assert (await http.post(f"/v1/jobs/{'0' * 64}/leave", headers=owner)).status_code == 404
    await holder.close()
