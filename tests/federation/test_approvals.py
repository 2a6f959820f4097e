"""A job that waits for owners over the whole federation: approved by some, refused by others."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from shoal_agent.console.own_agent import request_of
from shoal_protocol.jobs.job_state import JobState
from shoal_protocol.jobs.membership import Decision, approval_of
from shoal_protocol.wire.documents import sign
from tests.world.examples import signing_key
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, Trust

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
