"""Ways out of a job over the whole federation, with parties killed in between."""

import asyncio
from datetime import timedelta

import pytest

from shoal.jobs.job_failures import JobRefused, JobWithdrawn
from shoal_hosting.party import load_party
from shoal_protocol.jobs.membership import JobWithdrawal
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.encoding import canonical_json
from tests.world.federation import Federation
from tests.world.trust import SITES, TASK_WITH_PROJECTION

CLIENTS = sum(SITES.values())


async def free(federation: Federation) -> bool:
    """Tell whether no data holder has set anything aside."""
    await federation.start_the_dead()
    return all([not await federation.holder(site).reserved() for site in SITES])


async def joined(federation: Federation, job: str, count: int) -> bool:
    return bool((await federation.state(job))["joined"] == count)


async def test_a_job_with_a_far_deadline_is_taken_by_nobody(federation: Federation) -> None:
    with pytest.raises(JobRefused, match="maximum_join_seconds"):
        await federation.submit(join_seconds=365 * 86_400 * 7000)
    await federation.step()
    assert await free(federation)


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
    for node in federation.nodes:
        assert (await federation.ask(node, f"/v1/withdrawals/{job}")).status_code == 200
    await federation.until(lambda: free(federation))
    for site in SITES:
        (status,) = (await federation.holder(site).status()).jobs
        assert status.ended == "withdrawn"
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
        return bool(await federation.holder("clinic-a").spent())

    await federation.until(answered)
    await federation.after(federation.analyst.job(job).withdraw())
    state = await federation.finish(job)
    assert state["phase"] == "withdrawn"
    assert await free(federation)
    rounds = [each["number"] for each in state["rounds"]]
    assert rounds == [0]
    for site in SITES:
        holder = federation.holder(site)
        spent, committed = await holder.spent(), await holder.committed()
        assert committed.keys() == spent.keys()
        for client, costs in spent.items():
            assert len(costs) == 1
            assert committed[client].mu == pytest.approx(costs[0].mu)


@pytest.mark.parametrize("killed", ["nobody", "trainer", "clinic-c"])
async def test_who_leaves_in_time_is_not_counted(federation: Federation, killed: str) -> None:
    job = await federation.submit(join_seconds=60, maximum_population=100)
    await federation.until(lambda: joined(federation, job, CLIENTS))
    await federation.holder("clinic-c").leave(job)
    if killed != "nobody":
        await federation.crash(killed)
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    assert state["left"] == 1
    assert state["population_size"] == CLIENTS - SITES["clinic-c"]
    report = await federation.report(job)
    assert report.cohort_sizes == (CLIENTS - SITES["clinic-c"],)
    assert await federation.holder("clinic-c").spent() == {}
    assert await federation.holder("clinic-c").committed() == {}


async def test_who_leaves_a_job_that_runs_is_missing_from_the_cohort_and_no_more(
    federation: Federation,
) -> None:
    job = await federation.submit()  # it begins as soon as all have joined
    await federation.until(lambda: joined(federation, job, CLIENTS))
    await federation.holder("clinic-c").leave(job)
    state = await federation.finish(job)
    assert (state["phase"], state["population_size"]) == ("finished", CLIENTS), state
    report = await federation.report(job)
    assert report.cohort_sizes == (CLIENTS - SITES["clinic-c"],)
    assert await federation.holder("clinic-c").spent() == {}


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


async def test_one_withdraws_only_ones_own_job_and_while_it_is_open(
    federation: Federation,
) -> None:
    await federation.learn()
    job = (await federation.after(federation.analyst.jobs())).jobs[0].job
    with pytest.raises(JobRefused, match="wrong-phase"):
        await federation.after(federation.analyst.job(job).withdraw())


async def test_two_withdrawals_and_a_leave_at_once(federation: Federation) -> None:
    job = await federation.submit(join_seconds=60, maximum_population=100)
    await federation.until(lambda: joined(federation, job, CLIENTS))

    async def both() -> None:
        handle = federation.analyst.job(job)
        await asyncio.gather(handle.withdraw(), handle.withdraw())

    await federation.holder("clinic-b").leave(job)
    await federation.after(both())
    await federation.until(lambda: free(federation))
    ends = [(await federation.holder(site).status()).jobs[0].ended for site in SITES]
    assert ends == ["withdrawn", "left", "withdrawn"]


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
    told = canonical_json({"request": request.to_json(), "withdrawal": withdrawal.to_json()})
    for node in federation.nodes:
        answer = await federation.ask(node, "/v1/withdrawals", method="POST", content=told)
        assert answer.status_code == 201
    state = await federation.finish(job)
    assert state["phase"] == "failed"
    assert "the analyst has withdrawn the job" in state["reason"]
    assert await free(federation)
    assert not await federation.holder("clinic-a").spent()
