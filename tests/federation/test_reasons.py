"""Why something does not work is said, by the party that knows it, to who must act."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import CapturingLogger

from shoal.jobs.job_failures import JobFailed, JobRefused
from shoal.jobs.job_settings import JobSettings
from shoal_agent import assembly, joining
from shoal_agent.console.sentences import troubles
from tests.federation.test_approvals import HOLDERS, decide, stands
from tests.world.federation import GRACE_SECONDS, JOIN_SECONDS, PRIVACY, ROUND_SECONDS, Federation
from tests.world.trust import HOLDER_POLICY, SITES, TASK, Trust

HOURS = 10 * 3600.0
WEAKENS = ("SHOAL_WITHOUT_NODES", "trust_clock", "--trust-clock", "accept")
"""What no message may advise where a clock is wrong."""


def settings(federation: Federation) -> JobSettings:
    return JobSettings(
        **PRIVACY.model_dump(),
        minimum_population=10,
        maximum_population=sum(SITES.values()),
        join_seconds=JOIN_SECONDS,
        round_seconds=ROUND_SECONDS,
        grace_seconds=GRACE_SECONDS,
    )


@pytest.mark.parametrize(
    ("ahead", "said"), [(HOURS, "ahead of"), (-HOURS, "behind")], ids=["ahead", "behind"]
)
async def test_an_analyst_whose_clock_is_wrong_reads_by_how_much(
    federation: Federation, ahead: float, said: str
) -> None:
    await federation.step()
    federation.clock.skew_seconds["analyst"] = ahead
    with pytest.raises(JobRefused, match=rf"10:00:00 \(h:mm:ss\) {said} the clock here"):
        await federation.after(federation.analyst.jobs())
    with pytest.raises(JobRefused, match=r"(10:00:00|9:59:50|1[45] days.*) .*clock .* is wrong"):
        await federation.submit(join_seconds=10 if ahead < 0 else 14 * 86_400 - 60)


@pytest.mark.parametrize(("ahead", "by"), [(HOURS, "10:00:00"), (1200.0, "0:20:00")])
async def test_a_data_holder_whose_clock_is_wrong_reads_it_of_everyone_it_asks(
    trust: Trust, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: float, by: str
) -> None:
    logged = CapturingLogger()
    monkeypatch.setattr(assembly, "log", logged)
    async with Federation(trust, tmp_path) as federation:
        report = assembly.Telemetry(CollectorRegistry())
        federation.clock.skew_seconds["clinic-a"] = ahead
        for _ in range(40):
            await federation.step()
            federation.clock.move(1.0)
        status = await federation.party("clinic-a").status()
        unheard = status.unheard
        for party, said in unheard.items():
            assert any(party in each and said in each for each in troubles(status))
        assert set(unheard) >= set(federation.nodes)
        for said in unheard.values():
            report("charges not compared", reason=said)
            assert logged.calls.pop().method_name == "warning"
            assert f"{by} (h:mm:ss) ahead of the clock here: one of the two is wrong" in said
            assert not any(each in said for each in WEAKENS)


async def test_a_node_whose_clock_is_wrong_is_named_to_the_analyst(federation: Federation) -> None:
    await federation.step()
    job = await federation.submit()
    federation.clock.skew_seconds["compute-1"] = HOURS
    state = await federation.finish(job, seconds=3600)
    assert state["phase"] == "failed"
    assert "compute-1" in state["reason"]
    assert "the deadline has passed, 9:59:" in state["reason"] and "clock" in state["reason"]


async def reason_of(federation: Federation, job: str, **limits: float) -> str:
    """Finish a job that must fail; return why, as the analyst's library raises it."""
    await federation.finish(job, **limits)
    with pytest.raises(JobFailed) as failed:
        await federation.after(federation.analyst.job(job).result())
    listed = (await federation.after(federation.analyst.jobs())).jobs
    assert next(each.reason for each in listed if each.job == job) in str(failed.value)
    return str(failed.value)


async def test_a_missing_approval_and_a_refusal_of_owners_are_said(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, holders=HOLDERS) as federation:
        job = await federation.submit(join_seconds=60)
        await federation.until(lambda: stands(federation, job, 3, 0))
        await decide(federation, "clinic-a", job, "refuse")
        reason = await reason_of(federation, job)
        assert "0 clients joined, 10 are needed: " in reason
        assert "data holders 1, 2: the owners did not approve the job in time" in reason
        assert "data holder 0: the owners refused the job" in reason
        assert "job check" not in reason


@pytest.mark.parametrize("declare", [True, False])
async def test_a_policy_that_lists_no_owner_who_could_approve_is_said(
    trust: Trust, tmp_path: Path, *, declare: bool
) -> None:
    policy = HOLDER_POLICY.model_copy(update={"approval": "one", "owners": {}, "declare": declare})
    async with Federation(trust, tmp_path, holders={"clinic-a": {"policy": policy}}) as federation:
        await federation.step()
        checked = await federation.after(federation.analyst.check(TASK, settings(federation)))
        [reason] = [each.reason for each in checked.holders if each.reason]
        assert ("lists no owner who could approve" in reason) == declare
        if declare:
            with pytest.raises(JobRefused, match="lists no owner who could approve the job"):
                await federation.submit(minimum_population=10)
            return
        reason = await reason_of(federation, await federation.submit(minimum_population=10))
        assert "more time to join helps only if the policy there lists owners" in reason


async def test_a_data_holder_that_is_away_is_said(federation: Federation) -> None:
    await federation.step()
    federation.absent.add("clinic-c")
    await federation.crash("clinic-c")
    federation.clock.move(60)
    reason = await reason_of(federation, await federation.submit(minimum_population=13))
    assert "data holder 2: not heard of since 2026-03-01 12:01" in reason
    checked = await federation.after(federation.analyst.check(TASK, settings(federation)))
    [away] = [each for each in checked.holders if each.reason is not None]
    assert away.holder == 2 and "it is away" in str(away.reason)


async def test_an_owners_rule_that_is_not_declared_is_pointed_at(
    trust: Trust, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "MOST_ENDED", 1)
    silent = HOLDER_POLICY.model_copy(update={"declare": False, "queries": ("counts",)})
    async with Federation(trust, tmp_path, holders={"clinic-a": {"policy": silent}}) as federation:
        await federation.step()
        for minimum in (12, 13):  # of two that have ended the newest is shown
            job = await federation.submit(minimum_population=minimum)
            reason = await reason_of(federation, job)
            assert "heard of the job and did not join it, for a reason that only" in reason
            await federation.step()
            seen = (await federation.holder("clinic-a").status()).refused
            assert seen.keys() == {job} and "does not allow the query" in seen[job]
            assert (await federation.holder("clinic-a").job(job)).job == job


async def test_a_service_that_is_away_is_named_with_why_and_nobody_is_charged(
    federation: Federation,
) -> None:
    await federation.step()
    federation.absent.add("compute-1")
    await federation.crash("compute-1")
    reason = await reason_of(federation, await federation.submit())
    assert "round 0 was not accepted in time by compute-1 (nobody listens)" in reason
    assert "nobody was charged" in reason
    checked = await federation.after(federation.analyst.check(TASK, settings(federation)))
    assert "compute-1 is away: nobody listens" in checked.reached and not checked.would_run


async def test_a_round_that_lacks_a_data_holder_names_it_and_says_who_is_charged(
    federation: Federation,
) -> None:
    job, _ = await federation.collecting()
    for site in ("clinic-b", "clinic-c"):
        federation.absent.add(site)
        await federation.crash(site)
    reason = await reason_of(federation, job)
    assert "cohort_too_small" in reason
    assert "no answer of data holders 1, 2" in reason
    assert "its price stays charged to the 14 clients that it asked" in reason
