"""A job that waits for owners over the whole federation: approved by some, refused by others."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from shoal.jobs.job_states import Approvals, JobState
from shoal_agent.console.own_agent import request_of
from shoal_command.rendering import rendered
from shoal_command_groups.job_views import listed
from shoal_protocol.jobs.approvals import Decision, approval_of
from shoal_protocol.wire.documents import sign
from tests.command.test_terminal import printed_by
from tests.federation.test_crowd_jobs import TICK, open_crowd, state
from tests.world.examples import signing_key
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, Trust, make_trust

OWNERS = {site: signing_key(f"owner of {site}") for site in SITES}
HOLDERS = {
    site: {
        "policy": HOLDER_POLICY.model_copy(
            update={"approval": "one", "owners": {site: bytes(key.verify_key).hex()}}
        )
    }
    for site, key in OWNERS.items()
}


@pytest.fixture
async def federation(trust: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    async with Federation(trust, tmp_path, holders=HOLDERS) as running:
        yield running


async def decide(federation: Federation, site: str, job: str, decision: Decision) -> None:
    """Have a site's owner decide about the one job that asks there."""
    holder = federation.holder(site)
    [asking] = await holder.approvals()
    assert (asking.job, asking.stage) == (job, "waits")
    assert asking.holder is not None
    body = approval_of(
        request_of(asking),
        holder=asking.holder,
        owner=site,
        decision=decision,
        now=federation.clock.now,
    )
    await holder.decide(sign(body, site, OWNERS[site]).encode())


async def seen(federation: Federation, job: str) -> str:
    """Return what the analyst reads of the job."""
    state = JobState.model_validate(await federation.state(job))
    now = federation.clock.now
    return state.in_words(rounds=1, join_deadline=now + timedelta(seconds=90))


async def stands(federation: Federation, job: str, waits: int, refused: int) -> bool:
    found = (await federation.state(job))["approvals"]
    return bool(found == {"waits": waits, "refused": refused, "holders": len(SITES)})


async def test_a_job_runs_with_those_whose_owners_approved_it_and_no_others(
    federation: Federation,
) -> None:
    job = await federation.submit(join_seconds=100)
    await federation.until(lambda: stands(federation, job, 3, 0))
    assert (await federation.state(job))["joined"] == 0
    assert "waits for approval at 3 of 3 data holders, until then" in await seen(federation, job)
    await decide(federation, "clinic-a", job, "approve")
    await federation.crash("clinic-a")  # before it could act on it
    await federation.until(lambda: stands(federation, job, 2, 0))
    assert (await federation.state(job))["joined"] == SITES["clinic-a"]
    await decide(federation, "clinic-c", job, "refuse")
    await federation.crash("clinic-c")
    await federation.until(lambda: stands(federation, job, 1, 1))
    said = await seen(federation, job)
    assert "waits for approval at 1 of 3 data holders, until then; " in said
    assert "refused by owners at 1 of 3" in said
    await decide(federation, "clinic-b", job, "approve")
    state = await federation.finish(job)
    assert state["phase"] == "finished"
    assert state["population_size"] == SITES["clinic-a"] + SITES["clinic-b"]
    assert await federation.report(job)
    assert await federation.holder("clinic-c").committed() == {}


async def crowd_stands(federation: Federation, job: str, waits: int, refused: int) -> bool:
    found = (await state(federation, job)).approvals
    return found == Approvals(waits=waits, refused=refused, holders=len(SITES))


async def test_the_analyst_of_a_crowd_job_sees_that_owners_think(tmp_path: Path) -> None:
    trust = make_trust(tmp_path / "trust", nodes=2, maximum_local_epsilon=2.0)
    crowd_rules = {"maximum_local_epsilon": 1.0, "crowd_families": ("linear",)}
    holders = {
        site: {"policy": own["policy"].model_copy(update=crowd_rules)}
        for site, own in HOLDERS.items()
    }
    async with Federation(trust, tmp_path, holders=holders) as federation:
        job = await open_crowd(federation)
        await federation.until(lambda: crowd_stands(federation, job, 3, 0))
        waits = "waits for approval at 3 of 3 data holders, until it closes"
        assert waits in str(await state(federation, job))
        page = await federation.after(federation.analyst.jobs())
        crowds = await federation.after(federation.analyst.crowds())
        assert waits in printed_by(rendered(listed(page, crowds)), width=400)
        await decide(federation, "clinic-a", job, "approve")
        await federation.crash("clinic-a")
        await decide(federation, "clinic-b", job, "refuse")
        await federation.until(lambda: crowd_stands(federation, job, 1, 1))
        found = await state(federation, job)
        said = "1 of 3 data holders, until it closes; refused by owners at 1 of 3"
        assert said in str(found)
        await federation.until(lambda: is_closed(federation, job), tick=TICK)
        found = await state(federation, job)
        assert found.contributions == 2 * SITES["clinic-a"]
        assert str(found).endswith(" clients")


async def is_closed(federation: Federation, job: str) -> bool:
    return (await state(federation, job)).has_result
