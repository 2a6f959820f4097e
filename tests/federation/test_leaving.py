"""Ways out of a job over the whole federation, with parties killed in between."""

from datetime import timedelta

import pytest

from shoal.jobs.job_failures import JobWithdrawn
from shoal_holder.state import State
from shoal_kit.party import load_party
from shoal_protocol.jobs.membership import JobWithdrawal
from shoal_protocol.wire.documents import sign
from tests.world.federation import Federation
from tests.world.spending import costs_of
from tests.world.trust import SITES, TASK_WITH_PROJECTION

CLIENTS = sum(SITES.values())


async def free(federation: Federation) -> bool:
    """Tell whether no data holder has set anything aside."""
    await federation.start_the_dead()
    vaults = [federation.holder(site).vault for site in SITES]
    return all([not await vault.ask(State.reserved) for vault in vaults])


async def joined(federation: Federation, job: str, count: int) -> bool:
    return bool((await federation.state(job))["joined"] == count)


@pytest.mark.parametrize("killed", ["nobody", "trainer", "clinic-a"])
async def test_a_withdrawn_job_ends_everywhere_and_frees_all_budgets(
    federation: Federation, killed: str
) -> None:
    job = await federation.submit(join_seconds=100, maximum_population=100)
    await federation.until(lambda: joined(federation, job, CLIENTS))
    waiting = federation._analyst_life.spawn(federation.analyst.job(job).wait())
    await federation.after(federation.analyst.job(job).withdraw())
    if killed != "nobody":
        await federation.crash(killed)
    await federation.after(federation.analyst.job(job).withdraw())  # says the same
    await federation.until(lambda: free(federation))
    for site in SITES:
        (status,) = (await federation.holder(site).status()).jobs
        assert status.ended == "job-withdrawn"
        assert await federation.holder(site).committed() == {}
    assert (await federation.state(job))["phase"] == "withdrawn"
    with pytest.raises(JobWithdrawn):
        await federation.after(federation.analyst.job(job).result())
    with pytest.raises(JobWithdrawn):
        await federation.after(federation.analyst.job(job).certificate())

    async def told() -> bool:
        return waiting.done()

    await federation.until(told)
    with pytest.raises(JobWithdrawn):
        waiting.result()
    await federation.learn()  # all can pay


async def test_a_withdrawal_while_a_round_runs_leaves_its_price_with_who_answered(
    federation: Federation,
) -> None:
    job, _ = await federation.collecting(task=TASK_WITH_PROJECTION)

    async def answered() -> bool:
        return bool(await costs_of(federation.holder("clinic-a")))

    await federation.until(answered)
    await federation.after(federation.analyst.job(job).withdraw())
    state = await federation.finish(job)
    assert state["phase"] == "withdrawn"
    assert await free(federation)
    rounds = [each["number"] for each in state["rounds"]]
    assert rounds == [0]
    for site in SITES:
        holder = federation.holder(site)
        spent, committed = await costs_of(holder), await holder.committed()
        assert committed.keys() == spent.keys()
        for client, costs in spent.items():
            assert len(costs) == 1
            assert committed[client].mu == pytest.approx(costs[0].mu)


async def test_a_trainer_that_is_gone_holds_no_budget_after_the_jobs_time(
    federation: Federation,
) -> None:
    request = federation.request(join_seconds=60, maximum_population=100)
    job = await federation.hand_in(request)
    await federation.until(lambda: joined(federation, job, CLIENTS))
    federation.absent.add("trainer")
    await federation.crash("trainer")
    federation.clock.now = request.body.ends_by - timedelta(seconds=1)
    await federation.step()
    assert not await free(federation)
    federation.clock.move(2)
    await federation.step()
    assert await free(federation)
    federation.absent.clear()
    await federation.step()
    assert (await federation.state(job))["phase"] == "failed"
    assert await free(federation)


async def test_a_trainer_that_hides_a_withdrawal_finds_no_node_that_goes_on(
    federation: Federation,
) -> None:
    request = federation.request(join_seconds=60, maximum_population=100)
    job = await federation.hand_in(request)
    await federation.until(lambda: joined(federation, job, CLIENTS))
    home = federation.trust.directory / "parties" / "analyst"
    withdrawal = sign(
        JobWithdrawal(manifest=request.body.manifest, job=job, analyst="analyst"),
        "analyst",
        load_party(home).signing_key,
    )
    for node in federation.nodes:
        for path, told in (("/v1/jobs", request), ("/v1/withdrawals", withdrawal)):
            answer = await federation.ask(node, path, method="POST", content=told.encode())
            assert answer.status_code == 201
    state = await federation.finish(job)
    assert state["phase"] == "failed"
    assert "the analyst has withdrawn the job" in state["reason"]
    assert await free(federation)
    assert not await costs_of(federation.holder("clinic-a"))
