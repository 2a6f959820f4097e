"""What a data holder sets aside for a job has an end: its time, a withdrawal, or leaving it."""

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from shoal_agent.application import create_agent_application
from shoal_protocol.jobs.membership import JobWithdrawal
from shoal_protocol.wire.documents import Signed, sign
from shoal_studies.study_request import StudyRequest
from tests.world.around_holder import World, problem
from tests.world.clock import HandMovedTimer
from tests.world.examples import signing_key

CLIENTS = 12


def script(world: World, ending: str, answer: httpx.Response) -> list[httpx.Request]:
    """Have the trainer answer so whatever path ends in `ending`; return what was asked."""
    asked: list[httpx.Request] = []
    before = world.wire.scripts.get("trainer", lambda request: None)

    def told(request: httpx.Request) -> httpx.Response | None:
        if not request.url.path.endswith(ending):
            return before(request)
        asked.append(request)
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)

    world.wire.scripts["trainer"] = told
    return asked


def withdrawal(world: World, request: Signed[StudyRequest], **changes: Any) -> bytes:
    fields = {"manifest": request.body.manifest, "job": request.digest, "analyst": "analyst"}
    key = signing_key("analyst")
    return sign(JobWithdrawal(**(fields | changes)), "analyst", key).encode()


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


@pytest.mark.parametrize("lie", ["another job's", "another analyst's", "nothing"])
async def test_a_withdrawal_that_is_none_is_not_said_to_be_the_analysts(
    world: World, lie: str
) -> None:
    holder = world.holder()
    request = world.submit()
    await holder.step()
    told = {
        "another job's": withdrawal(world, request, job="ab" * 32),
        "another analyst's": withdrawal(world, request, analyst="trainer"),
        "nothing": b"{}",
    }[lie]
    script(world, "/rounds/0", problem(410, "job-withdrawn"))
    script(world, "/withdrawal", httpx.Response(200, content=told))
    await holder.step()
    assert (await holder.status()).jobs[0].ended == "withdrawn, by the trainer's word alone"
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
    assert len(await holder.spent()) == CLIENTS
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
